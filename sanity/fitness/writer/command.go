package writer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost/cli"
)

// Options are the flags of csi-fencepost sanity writer.
type Options struct {
	Path, Listen string
	Overwrite    bool
	// Set is the flag set itself, for its help.
	Set *pflag.FlagSet
}

// NewOptions are the flags with their defaults.
func NewOptions() *Options {
	o := &Options{Set: pflag.NewFlagSet("sanity writer", pflag.ContinueOnError)}
	o.Set.SortFlags = false
	o.Set.Usage = func() {}
	o.Set.StringVar(&o.Path, "path", "", "The device or file to write to. $(VOLUME_ID), $(NODE_ID) and $(CONTEXT.key), a key of the publish context, are filled in. Required.")
	o.Set.StringVar(&o.Listen, "listen", "", "The TCP address to serve, for example :7070. Default: the protocol is spoken on standard input and output.")
	o.Set.BoolVar(&o.Overwrite, "overwrite", false, "Write over the data of others, too.")
	return o
}

// Parse reads a command line; pflag.ErrHelp if only the flags were asked for.
func Parse(args []string) (*Options, error) {
	o := NewOptions()
	if err := o.Set.Parse(args); IsHelp(err) {
		return o, err
	} else if err != nil {
		return o, errors.New(cli.FlagError(err, o.Set))
	}
	switch {
	case o.Set.NArg() > 0:
		return o, fmt.Errorf("%q is no flag", o.Set.Arg(0))
	case o.Path == "":
		return o, errors.New("--path is missing: the device or file to write to")
	}
	return o, nil
}

// Run is the program: it serves until ctx or its input ends. Each session on TCP
// has a volume of its own.
func (o *Options) Run(ctx context.Context, in io.Reader, out, log io.Writer) error {
	if o.Listen == "" {
		return Serve(ctx, in, out, OpenPath(o.Path, o.Overwrite))
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "listening on %s\n", listener.Addr())
	return Listen(ctx, listener, OpenPath(o.Path, o.Overwrite))
}

// Listen serves suites on a listener until ctx ends, and closes it.
func Listen(ctx context.Context, listener net.Listener, open Open) error {
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	var sessions sync.WaitGroup
	defer sessions.Wait()
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !errors.Is(err, syscall.ECONNABORTED) {
			return err
		}
		if err != nil {
			continue
		}
		sessions.Go(func() {
			defer conn.Close()
			Serve(ctx, conn, conn, open) // how it ended is the suite's to say
		})
	}
}

const help = `csi-fencepost sanity writer is a client that does not let go: it writes to a device or a file every
10 ms, and tells csi-fencepost sanity which writes succeed. It overwrites the first 4096 bytes. It
begins when it is told to, and runs on the first node of --node-ids. The protocol is three words that
can be typed by hand: docs/vendors/fitness.md.

csi-fencepost sanity writer --path '/dev/disk/by-id/scsi-$(VOLUME_ID)' --listen :7070

Flags:
`

// PrintHelp says what the program does, and its flags.
func PrintHelp(w io.Writer) { fmt.Fprint(w, help, NewOptions().Set.FlagUsages()) }

// IsHelp tells whether only the flags were asked for.
func IsHelp(err error) bool { return errors.Is(err, pflag.ErrHelp) }
