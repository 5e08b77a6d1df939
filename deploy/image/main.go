package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "image: %v\n", err)
		os.Exit(1)
	}
}

// A release is what is built, and where to.
type release struct {
	source  string // folder of the main module
	output  string // folder
	name    string // of the image, without a tag
	version string // of the program, and the image's tag
	date    time.Time
	// certificates is a file of CA certificates to put into the image; none
	// where empty.
	certificates string
	imageOnly    bool
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	r, err := parse(args)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(r.output, 0o755); err != nil {
		return err
	}
	return r.build(ctx, progress)
}

// tag is what a registry takes as one; what the names of the files take, too.
var tag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

func parse(args []string) (release, error) {
	var r release
	date := os.Getenv("SOURCE_DATE_EPOCH")
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	fs.StringVar(&r.source, "source", ".", "The folder of the main module.")
	fs.StringVar(&r.output, "o", "bin/dist", "The folder for what is built.")
	fs.StringVar(&r.name, "name", "csi-fencepost", "The name of the image, with the registry if it is known, without a tag. With the registry it is what the program's inject puts in.")
	fs.StringVar(&r.version, "version", "dev", "The version, which is also the image's tag.")
	fs.StringVar(&date, "date", date, "The date that stands in what is built, in seconds since 1970: that of the commit. 0 by default, or SOURCE_DATE_EPOCH.")
	fs.StringVar(&r.certificates, "certificates", "", "A file of CA certificates for the image. Without it csi-fencepost needs none, for the API server's comes with the service account, and the fence agents have those that Mozilla trusts.")
	fs.BoolVar(&r.imageOnly, "image-only", false, "Only the image, nothing else of a release.")
	if err := fs.Parse(args); err != nil {
		return r, err
	}
	if fs.NArg() > 0 {
		return r, fmt.Errorf("takes flags only, got %q", fs.Args())
	}
	if !tag.MatchString(r.version) {
		return r, fmt.Errorf("-version %q cannot be the tag of an image: letters, digits, _ . - and no more than 128", r.version)
	}
	if date == "" {
		date = "0"
	}
	seconds, err := strconv.ParseInt(date, 10, 64)
	if err != nil || seconds < 0 {
		return r, fmt.Errorf("-date %q is not a number of seconds since 1970", date)
	}
	r.date = time.Unix(seconds, 0).UTC()
	return r, nil
}

// add puts a program and its SBOM beside the other files.
func (r release) add(files files, c command, arch string, program []byte) error {
	bom, err := r.bom(c, program)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s_%s_linux_%s", c.name, r.version, arch)
	files[name], files[name+".cdx.json"] = file{program, 0o755}, file{bom, 0o644}
	return nil
}

// build builds all, and says of each file where it is.
func (r release) build(ctx context.Context, progress io.Writer) error {
	work, err := os.MkdirTemp(r.output, ".building-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	files := files{}
	images := map[string]v1.Image{}
	programs := map[string][]byte{} // csi-fencepost, by architecture
	for _, arch := range architectures {
		fmt.Fprintf(progress, "building linux/%s\n", arch)
		built := map[command][]byte{}
		for _, c := range commands {
			if built[c], err = r.compile(ctx, c, arch, work); err != nil {
				return err
			}
			if r.imageOnly {
				continue
			}
			if err := r.add(files, c, arch, built[c]); err != nil {
				return err
			}
		}
		programs[arch] = built[guard]
		if images[arch], err = r.image(arch, built); err != nil {
			return err
		}
	}
	archive, err := r.archive(images, work)
	if err != nil {
		return err
	}
	files[fmt.Sprintf("csi-fencepost_%s.oci.tar", r.version)] = file{archive, 0o644}
	if !r.imageOnly {
		if err := errors.Join(r.plugin(files, programs), r.chart(ctx, files, work)); err != nil {
			return err
		}
		files["SHA256SUMS"] = file{files.checksums(), 0o644}
	}
	return files.write(r.output, progress)
}
