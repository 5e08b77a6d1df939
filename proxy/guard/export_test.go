package guard

import (
	"context"
	"time"
)

// What the tests that stand outside see of a guard's inside.
const (
	AbandonedAfter = abandonedAfter
	Rounds         = rounds
	WriteTimeout   = writeTimeout
)

// Old is old.
var Old = old

// ForcedIn is forcedIn.
var ForcedIn = forcedIn

// SetEffectHook has f called at each point; nil: nothing, as in the product.
func SetEffectHook(f func(point string)) { effectHook = f }

// Leaving is since when this guard has seen an unpublish pending, by token.
func (g *Guard) Leaving() map[string]sight { return g.leaving }

// Ago makes what is seen pending pending since so long ago; token is one that was not seen yet.
func (g *Guard) Ago(ago time.Duration, token string) {
	if token != "" {
		g.leaving[token] = sight{}
	}
	for token, seen := range g.leaving {
		seen.since = time.Now().Add(-ago)
		g.leaving[token] = seen
	}
}

// SurveyContext is what a call has for a survey.
func (g *Guard) SurveyContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return g.surveyContext(ctx)
}

// SetApart has the seal that is on say nothing of these volumes.
func (s *Seal) SetApart(volumes ...string) { s.setApart(s.session, volumes...) }
