package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// The media types of github.com/opencontainers/image-spec v1.1.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// The user of the image: no name of it is needed in any /etc/passwd, and
// runAsNonRoot can check a number.
const user = "65532:65532"

// What follows are the documents of image-spec v1.1, with the fields used here.

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Manifests     []descriptor      `json:"manifests"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        descriptor        `json:"config"`
	Layers        []descriptor      `json:"layers"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

type imageConfig struct {
	platform
	Created time.Time `json:"created"`
	Config  struct {
		User       string
		Entrypoint []string
		Labels     map[string]string
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// blobs are contents by digest.
type blobs map[string][]byte

// add keeps content and describes it.
func (b blobs) add(mediaType string, content []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digest(content), Size: len(content)}
	b[d.Digest] = content
	return d
}

// addJSON is add for a document.
func (b blobs) addJSON(mediaType string, document any) (descriptor, error) {
	content, err := json.Marshal(document)
	return b.add(mediaType, content), err
}

// A platformImage is the image for one platform: its manifest, and the blobs
// that it consists of.
type platformImage struct {
	manifest descriptor
	blobs    blobs
}

func (r release) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "csi-fencepost",
		"org.opencontainers.image.description": "Guards the single-writer volumes of a CSI driver",
		"org.opencontainers.image.source":      "https://" + mainModule,
		"org.opencontainers.image.version":     r.version,
	}
}

// image makes the image for one architecture.
func (r release) image(arch string, program []byte) (platformImage, error) {
	layer, diffID, err := r.layer(program)
	if err != nil {
		return platformImage{}, err
	}
	c := imageConfig{platform: platform{arch, "linux"}, Created: r.date}
	c.Config.User = user
	c.Config.Entrypoint = []string{"/" + programPath}
	c.Config.Labels = r.labels()
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs = []string{diffID}
	c.History = []history{{r.date, "go run ./deploy/image"}}

	i := platformImage{blobs: blobs{}}
	m := manifest{SchemaVersion: 2, MediaType: manifestType, Layers: []descriptor{i.blobs.add(layerType, layer)}, Annotations: r.labels()}
	if m.Config, err = i.blobs.addJSON(configType, c); err != nil {
		return i, err
	}
	i.manifest, err = i.blobs.addJSON(manifestType, m)
	i.manifest.Platform = &platform{arch, "linux"}
	return i, err
}

// archive joins the images to one for several platforms. The outer index names
// that one, and not each platform's: only so do skopeo, podman and containerd
// find one image in the archive, under one tag.
func (r release) archive(images []platformImage) ([]byte, error) {
	all := blobs{}
	inner := index{SchemaVersion: 2, MediaType: indexType, Annotations: r.labels()}
	for _, i := range images {
		inner.Manifests = append(inner.Manifests, i.manifest)
		maps.Copy(all, i.blobs)
	}
	image, err := all.addJSON(indexType, inner)
	if err != nil {
		return nil, err
	}
	image.Annotations = map[string]string{
		"org.opencontainers.image.ref.name": r.version,
		"io.containerd.image.name":          r.name + ":" + r.version, // docker load, ctr import
	}
	outer, err := json.Marshal(index{SchemaVersion: 2, MediaType: indexType, Manifests: []descriptor{image}})
	if err != nil {
		return nil, err
	}
	entries := []entry{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`), 0o644},
		{"index.json", outer, 0o644},
		{"blobs/", nil, 0o755}, {"blobs/sha256/", nil, 0o755},
	}
	for _, d := range slices.Sorted(maps.Keys(all)) {
		entries = append(entries, entry{"blobs/" + strings.Replace(d, ":", "/", 1), all[d], 0o644})
	}
	return tarOf(entries, r.date)
}
