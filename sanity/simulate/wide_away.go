package simulate

// In the wide world the controllers and the sidecars go away together, as those of a control
// plane do whose machine is down: no call is made, nobody watches, no node is called
// unready. Kubelets and people go on, and whoever comes back begins anew.

func (w *World) goAway() {
	w.away, w.noADC = true, true
	w.rollOut(w.mode)
}

func (w *World) comeBack() {
	if !w.away {
		return
	}
	w.away, w.noADC = false, false
	w.restartController()
}
