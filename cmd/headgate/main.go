// Command headgate is the rate limiter as a server: an HTTP API, a reverse
// proxy, and the tools around them. Run headgate help.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
