package facts

import "testing"

// TestTheSimulationsKubeletIsTheRealOne, but for what is said of the line, and there it is
// on the safe side: it forgets no less, and writes no less.
func TestTheSimulationsKubeletIsTheRealOne(t *testing.T) {
	a, err := Recorded()
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Real) != len(Kubelet) || len(a.Hollow) != len(Kubelet) {
		t.Errorf("%d lines, and answers of real kubelets to %d, of hollow ones to %d", len(Kubelet), len(a.Real), len(a.Hollow))
	}
	for _, f := range Kubelet {
		real, asked := a.Real[f.Name]
		if _, hollow := a.Hollow[f.Name]; !asked || !hollow {
			t.Errorf("%s: nobody has asked", f.Name)
			continue
		}
		switch sim := f.Simulated; {
		case sim == real && f.Differs != "":
			t.Errorf("%s: the simulation does the same as a real kubelet; the line says why it does not: %s", f.Name, f.Differs)
		case sim == real:
		case f.Differs == "":
			t.Errorf("%s: a real kubelet: %s; the simulation: %s", f.Name, real, sim)
		case real.Writes && !sim.Writes || real.Mounted && !sim.Mounted || real.Forgotten && !sim.Forgotten:
			t.Errorf("%s: a real kubelet: %s; the simulation: %s, which is less than what can be dangerous", f.Name, real, sim)
		}
	}
}
