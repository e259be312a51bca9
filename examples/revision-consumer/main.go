// Command revision-consumer prints every revision of the windows of one key.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/nats-io/nats.go"
	"github.com/tidemark-mesh/tidemark/pkg/subscribe"
)

func main() {
	if len(os.Args) != 5 {
		log.Fatal("usage: revision-consumer nats://127.0.0.1:4222 STREAM JOB KEY")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	nc, err := nats.Connect(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	sub, err := subscribe.Open(ctx, nc, subscribe.Options{Stream: os.Args[2], Job: os.Args[3], Key: os.Args[4]})
	if err != nil {
		log.Fatal(err)
	}
	for {
		batch, err := sub.Next(ctx)
		if err != nil {
			log.Print(err)
			return
		}
		for _, r := range batch.Revisions {
			fmt.Println(r.Key, r.Window.Start, r.Window.End, r.Op, r.Revision, r.Value)
		}
	}
}
