// Command db is the only program in the containers of real nodes: the database
// (package pages), and what holds a pod's namespaces.
//
//	db pause                         until SIGTERM
//	db write FOLDER WRITER TOLD      commits until SIGTERM, and adds a line for each to
//	                                 the file TOLD: clients were told of it
//	db deaf FOLDER WRITER TOLD       the same, and only SIGKILL ends it
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/csi-fencepost/csi-fencepost/sanity/realnode/pages"
)

const every = 20 * time.Millisecond

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "db:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(args) > 0 && args[0] == "deaf" {
		ctx = context.WithoutCancel(ctx)
		args[0] = "write"
	}
	switch {
	case len(args) == 1 && args[0] == "pause":
		<-ctx.Done()
		return nil
	case len(args) == 4 && args[0] == "write":
		told, err := os.OpenFile(args[3], os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		defer told.Close()
		return pages.Write(ctx, args[1], args[2], every, func(c pages.Commit) { fmt.Fprintln(told, c) })
	}
	return fmt.Errorf("usage: db pause | write|deaf FOLDER WRITER TOLD; got %q", args)
}
