// Command headgate is the rate limiter as a server: an HTTP API, a reverse
// proxy, and the tools around them. Run headgate help.
package main

import (
	"context"
	"os"
	_ "time/tzdata" // for timezone: in rules, where the machine has no zones, such as an image from scratch

	"github.com/headgate/headgate/internal/app"
)

func main() {
	app.LogPackages()
	os.Exit(run(context.Background(), os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
