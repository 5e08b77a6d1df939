package guard

// Effect names a side effect of an intercepted call. Each is announced before
// and after it happens, so that a test can end the process exactly there.
type Effect string

const (
	EffectContest    Effect = "contest"   // ledger: the holder is contested
	EffectLeaving    Effect = "leaving"   // ledger: holders marked leaving
	EffectUnpublish  Effect = "unpublish" // driver: ControllerUnpublishVolume
	EffectRecord     Effect = "record"    // ledger: the new holder written down
	EffectPublish    Effect = "publish"   // driver: ControllerPublishVolume
	EffectCut        Effect = "cut"       // ledger: the old holder cut
	EffectAnswer     Effect = "answer"    // the answer to the caller
	EffectWake       Effect = "wake"      // VolumeAttachment: annotation touched
	effectBeforeMark        = "before:"
	effectAfterMark         = "after:"
)

// effectHook is called at each point; nil in the product.
var effectHook func(point string)

// Do runs a side effect between its two points, and returns what f does.
func Do(e Effect, f func() error) error {
	if effectHook != nil {
		effectHook(effectBeforeMark + string(e))
		defer effectHook(effectAfterMark + string(e))
	}
	return f()
}
