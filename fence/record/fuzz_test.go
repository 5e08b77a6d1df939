package record

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-fencepost/csi-fencepost/fence"
)

func leaseWith(record, fenced, claimed string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName("n1"), Annotations: map[string]string{
		Annotation: record, FencedAnnotation: fenced, ClaimedAnnotation: claimed}}}
}

// Whatever stands in a record's Lease: a claim is vouched for only if its digest stands beside the
// record, in the annotation that is for its kind, and who writes the record again adds none.
func FuzzLease(f *testing.F) {
	r, err := Parse(stored)
	if err != nil {
		f.Fatal(err)
	}
	r.Node = "n1"
	whole, err := r.encode()
	if err != nil {
		f.Fatal(err)
	}
	fenced, claimed := digests(r)
	f.Add(whole, strings.Join(fenced, ","), strings.Join(claimed, ","))
	f.Add(whole, strings.Join(claimed, ","), strings.Join(fenced, ","))
	f.Add(whole, ",x=,="+strings.Join(fenced, "=,"), "")
	f.Add(`{"version":1,"node":"n1"}`, "", ",,")
	f.Fuzz(func(t *testing.T, text, fenced, claimed string) {
		lease := leaseWith(text, fenced, claimed)
		r, err := FromLease(lease, "n1")
		if err != nil {
			return
		}
		inFenced, inClaimed := digests(r)
		stands := map[string][]string{FencedAnnotation: strings.Split(fenced, ","), ClaimedAnnotation: strings.Split(claimed, ",")}
		for name, all := range map[string][]string{FencedAnnotation: inFenced, ClaimedAnnotation: inClaimed} {
			for _, c := range claims(r) {
				if d := digest(c); d != "" && slices.Contains(all, d) && r.Vouched(c) != slices.Contains(stands[name], d) {
					t.Errorf("%s is vouched for: %v, and %s is %q", d, r.Vouched(c), name, stands[name])
				}
			}
		}
		if err := r.ToLease(lease); err != nil {
			return
		}
		for name, was := range stands {
			for now := range strings.SplitSeq(lease.Annotations[name], ",") {
				if !slices.Contains(was, now) && now != "" {
					t.Errorf("%s got %q, and was %q", name, now, was)
				}
			}
		}
	})
}

// claims are all claims of the record.
func claims(r *Record) (all []Claim) {
	for i := range r.Fences {
		all = append(all, &r.Fences[i], r.Fences[i].Cutting())
	}
	if r.Identity != nil {
		all = append(all, r.Identity)
	}
	for i := range r.Questions {
		all = append(all, &r.Questions[i])
	}
	for i := range r.Confirmations {
		for j := range r.Confirmations[i].Machines {
			all = append(all, r.Confirmations[i].Of(&r.Confirmations[i].Machines[j]))
		}
	}
	for i := range r.Releases {
		all = append(all, &r.Releases[i])
	}
	for i := range r.Overrides {
		all = append(all, &r.Overrides[i])
	}
	return all
}

// digests are those of what programs claim, and of what people say.
func digests(r *Record) (fenced, claimed []string) {
	for _, c := range claims(r) {
		switch c.(type) {
		case *confirmed, *Release, *Override:
			claimed = append(claimed, digest(c))
		default:
			fenced = append(fenced, digest(c))
		}
	}
	return fenced, claimed
}

// deploy/admission/records.yaml lets an account that may fence for the driver "mine" alone add what
// begins with "mine=", split at commas. Whatever a fence says of itself, that vouches for the storage
// fences of this driver only, and what a person may add for none.
func FuzzOnlyItsOwnStorageFencesAreVouchedForInADriversName(f *testing.F) {
	f.Add("mine", "f1", "192.0.2.1/32", true)
	f.Add("another", "f1", "", true)
	f.Add("mine=", "f,mine=", "x", true)
	f.Add("", "f1", "mine=", true)
	f.Add("mine", "f1", "x", false)
	f.Add("mine,mine", "=", ",", true)
	form := regexp.MustCompile(`^[0-9a-f]{64}$`)
	f.Fuzz(func(t *testing.T, driver, id, detail string, storage bool) {
		one := Fence{ID: id, Kind: fence.PowerReading, Driver: driver, Phase: Fenced, Actor: "x", Agents: []string{"a"}, Machine: FencedMachine{NodeUID: "u", BootID: "b"},
			Steps: []FenceStep{{Agent: "a", Action: "off", Detail: detail}}}
		if storage {
			one.Kind = fence.StorageFence
		}
		for _, c := range []Claim{&one, one.Cutting()} {
			d := digest(c)
			of, hash, named := strings.Cut(d, "=")
			if d == "" {
				if !strings.ContainsAny(driver, "=,") {
					t.Errorf("a fence of driver %q cannot be vouched for", driver)
				}
				continue
			}
			if !named {
				of, hash = "", d
			}
			if named != storage || named && of != driver || !form.MatchString(hash) {
				t.Errorf("a fence of driver %q (storage: %v) is vouched for as %q", driver, storage, d)
			}
			for stands, want := range map[string]bool{"mine=" + hash: storage && driver == "mine", hash: !storage, "other=" + hash: storage && driver == "other"} {
				r := New("n1")
				r.readVouches(leaseWith("", stands, d))
				if r.Vouched(c) != want {
					t.Errorf("%q vouches for a fence of driver %q (storage: %v): %v", stands, driver, storage, !want)
				}
			}
		}
	})
}
