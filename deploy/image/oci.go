package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The user of the image: no name of it is needed in any /etc/passwd, and
// runAsNonRoot can check a number.
const user = "65532:65532"

func (r release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "csi-fencepost",
		"org.opencontainers.image.description": "Guards the single-writer volumes of a CSI driver",
		"org.opencontainers.image.source":      "https://" + mainModule,
		"org.opencontainers.image.version":     r.version,
	}
}

// image makes the image for one architecture, of its programs.
func (r release) image(arch string, programs map[command][]byte) (v1.Image, error) {
	layers, err := r.layers(programs)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{Architecture: arch, OS: "linux", Created: v1.Time{Time: r.date}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: user, Entrypoint: []string{"/" + programPath}, Labels: r.labels()}})
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "go run ./deploy/image"}})
		if err != nil {
			return nil, err
		}
	}
	return mutate.Annotations(image, r.labels()).(v1.Image), nil
}

// archive joins the images, by architecture, to one for several platforms. The outer index
// names that one, and not each platform's: only so do skopeo, podman and containerd
// find one image in the archive, under one tag. It works in a folder.
func (r release) archive(images map[string]v1.Image, folder string) ([]byte, error) {
	all := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range architectures {
		all = mutate.AppendManifests(all, mutate.IndexAddendum{Add: images[arch], Descriptor: v1.Descriptor{Platform: &v1.Platform{Architecture: arch, OS: "linux"}}})
	}
	folder = filepath.Join(folder, "layout")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return nil, err
	}
	err = path.AppendIndex(mutate.Annotations(all, r.labels()).(v1.ImageIndex), layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          r.name + ":" + r.version, // docker load, ctr import
	}))
	if err != nil {
		return nil, err
	}
	var entries []entry
	err = fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case d.IsDir():
			entries = append(entries, directory(name+"/"))
			return nil
		}
		content, err := os.ReadFile(filepath.Join(folder, name))
		entries = append(entries, entry{path: name, content: content, mode: 0o644})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the image layout: %w", err)
	}
	return tarOf(entries, r.date)
}
