package rest

import (
	"fmt"

	"github.com/csi-fencepost/csi-fencepost/cmd/csi-fencepost-agents/contract"
)

// maxPages of a list: with the smallest pages that a platform gives, tens of thousands of machines.
const maxPages = 1000

// Pages are those of one list that were asked for.
type Pages map[string]bool

// Turn notes that the page of that token comes next. It is an error where the platform names one again,
// or one after the other without an end: a list that is followed then ends only with the time.
func (p Pages) Turn(token string) error {
	switch {
	case p[token]:
		return fmt.Errorf("the list does not end: after %d pages the platform names the page %q once more as the next one, which was read. Nothing of it counts; see whether the endpoint is the platform's API, or a proxy that answers from its memory", len(p)+1, contract.Shortened(token, true))
	case len(p) >= maxPages:
		return fmt.Errorf("the list does not end: it has more than %d pages. Nothing of it counts; see whether the endpoint is the platform's API", maxPages)
	}
	p[token] = true
	return nil
}
