package machine

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

// Image is what machines boot.
type Image struct {
	Kernel, Initramfs string
}

// hint is what to do where a program or the kernel is missing.
const hint = "run make deps"

// modules that the guest needs to see a disk that is plugged in, in the order
// in which they are loaded. Debian's cloud kernel has none of them built in.
var modules = []string{"virtio/virtio_ring.ko", "virtio/virtio.ko", "virtio/virtio_pci_modern_dev.ko",
	"virtio/virtio_pci_legacy_dev.ko", "virtio/virtio_pci.ko", "block/virtio_blk.ko"}

// BuildImage makes what machines boot in folder: Debian's cloud kernel as it is
// installed, and an initramfs with the guest as its only program.
func BuildImage(ctx context.Context, folder string) (*Image, error) {
	kernel, version, err := cloudKernel()
	if err != nil {
		return nil, err
	}
	guest := filepath.Join(folder, "guest")
	build := exec.CommandContext(ctx, "go", "build", "-o", guest, "github.com/csi-fencepost/csi-fencepost/sanity/machine/guest/init")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest: %w\n%s", err, out)
	}
	files := map[string]string{"init": guest}
	var order []string
	for _, m := range modules {
		name := filepath.Base(m)
		order = append(order, name)
		files["modules/"+name] = filepath.Join("/lib/modules", version, "kernel/drivers", m)
	}
	image := &Image{Kernel: kernel, Initramfs: filepath.Join(folder, "initramfs.gz")}
	return image, writeInitramfs(image.Initramfs, files, strings.Join(order, "\n"))
}

// cloudKernel is the newest of Debian's cloud kernels that is installed.
func cloudKernel() (path, version string, err error) {
	all, err := filepath.Glob("/boot/vmlinuz-*-cloud-amd64")
	if err != nil || len(all) == 0 {
		return "", "", errors.Join(err, errors.New("there is no kernel /boot/vmlinuz-*-cloud-amd64 for the machines: "+hint))
	}
	sort.Strings(all)
	path = all[len(all)-1]
	return path, strings.TrimPrefix(filepath.Base(path), "vmlinuz-"), nil
}

// writeInitramfs packs files, by their name inside, as a gzipped cpio archive
// ("newc": Linux' Documentation/driver-api/early-userspace/buffer-format.rst).
func writeInitramfs(path string, files map[string]string, order string) error {
	var out bytes.Buffer
	cpioEntry(&out, "modules", 0o040755, nil)
	cpioEntry(&out, "dev", 0o040755, nil)
	cpioEntry(&out, "modules/order", 0o100644, []byte(order))
	var names []string
	for name := range files {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		content, err := os.ReadFile(files[name])
		if err != nil {
			return fmt.Errorf("the machines' initramfs: %w: %s", err, hint)
		}
		cpioEntry(&out, name, 0o100755, content)
	}
	cpioEntry(&out, "TRAILER!!!", 0, nil)
	return writeGzip(path, out.Bytes())
}

func cpioEntry(out *bytes.Buffer, name string, mode int, content []byte) {
	ino := out.Len()/4 + 1 // any number, each once
	fmt.Fprintf(out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		ino, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0)
	out.WriteString(name + "\x00")
	pad(out)
	out.Write(content)
	pad(out)
}

func pad(out *bytes.Buffer) {
	for out.Len()%4 != 0 {
		out.WriteByte(0)
	}
}

func writeGzip(path string, content []byte) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewWriterLevel(f, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := io.Copy(z, bytes.NewReader(content)); err != nil {
		return err
	}
	return z.Close()
}
