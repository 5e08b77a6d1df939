package profile

import (
	"path"
	"slices"
	"strings"
)

// A Known is what is known of one property: Unknown unless a source says so.
type Known string

// Whether a property holds.
const (
	Unknown Known = ""
	Yes     Known = "yes"
	No      Known = "no"
)

// A Fact is a property and where it was read: "owner/repository path, function", or
// a vendor's document and its section. An Unknown fact has no source.
type Fact struct {
	Known  Known
	Source string
}

// A Note is a sentence that a person should know, and where it was read.
type Note struct {
	Text, Source string
}

// String is the sentence with its source.
func (n Note) String() string {
	if n.Source == "" {
		return n.Text
	}
	return n.Text + " (" + n.Source + ")"
}

// A Profile is what is known of a driver.
type Profile struct {
	// Name as people say it.
	Name string
	// Drivers are its names in CSIDriver objects, the usual one first. A name
	// that begins with a dot stands for every name that ends in it.
	Drivers []string
	// Images are the last path elements of its own images, without tag. None where
	// another driver has the same image.
	Images []string
	// Read is the version of the driver's repository in which the sources were read, as
	// git describe says it, or its commit; and of which day it is: "v1.2.3 of 2026-01-02".
	Read string

	// Publishes tells whether Kubernetes has the driver publish volumes, so that there is something
	// to guard. It does not where its CSIDriver object says attachRequired: false, or its controller
	// has no PUBLISH_UNPUBLISH_VOLUME: external-attacher then calls nothing
	// (kubernetes-csi/external-attacher cmd/csi-attacher/main.go, NewTrivialHandler).
	Publishes Fact
	// RevokesAccess tells whether ControllerUnpublishVolume takes access from a client that goes on
	// writing.
	RevokesAccess Fact
	// ListsPublished tells whether ListVolumes names the nodes of a volume truthfully, as whoever
	// has the volumes says, and not as the driver remembers.
	ListsPublished Fact
	// TaintFirst tells whether the out-of-service taint has to be on the node before the unpublish,
	// or the driver does not fence.
	TaintFirst Fact
	// Notes are what a person should know before Enforce.
	Notes []Note
}

// All returns the profiles, in the order of the page docs/vendors/profiles.md.
func All() []Profile { return slices.Clone(profiles) }

// For returns the profile of the driver of that name, or the one of an unknown
// driver, which is never nil.
func For(driver string) *Profile {
	for i := range profiles {
		if slices.ContainsFunc(profiles[i].Drivers, func(name string) bool {
			return name == driver || strings.HasPrefix(name, ".") && strings.HasSuffix(driver, name)
		}) {
			return &profiles[i]
		}
	}
	return &Profile{Name: "unknown driver", Notes: []Note{{Text: "nothing is known of this driver: begin in mode Observe, and read what Enforce would have refused"}}}
}

// ForImage returns the profile of a driver's own image, or nil.
func ForImage(image string) *Profile {
	name := ImageName(image)
	for i := range profiles {
		if slices.Contains(profiles[i].Images, name) {
			return &profiles[i]
		}
	}
	return nil
}

// ImageName is the last element of an image's path, without tag and digest.
func ImageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	name, _, _ := strings.Cut(path.Base(image), ":")
	return name
}

// Driver is its usual name; "" where each installation chooses one.
func (p *Profile) Driver() string {
	for _, name := range p.Drivers {
		if !strings.HasPrefix(name, ".") {
			return name
		}
	}
	return ""
}
