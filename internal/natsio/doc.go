// Package natsio is the door to NATS: connecting, the embedded server, and the streams
// and buckets that Tidemark needs.
package natsio
