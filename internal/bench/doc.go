// Package bench makes the workload that speed is measured with, and judges what came out:
// hourly revenue with late corrections, the same events from the same seed in every run. It starts nothing; `tidemark bench` wires services around it.
package bench
