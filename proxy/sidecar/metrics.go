package sidecar

import (
	"sync"
	"time"

	csimetrics "github.com/kubernetes-csi/csi-lib-utils/metrics"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/csi-fencepost/csi-fencepost/fence"
	"github.com/csi-fencepost/csi-fencepost/fence/agent"
	"github.com/csi-fencepost/csi-fencepost/fence/failover"
)

// Metrics are all metrics of this program: those of every CSI sidecar
// (csi_sidecar_operations_seconds, of csi-lib-utils) and our own. They are safe
// for concurrent use.
type Metrics struct {
	csimetrics.CSIMetricsManager

	decisions    *metrics.CounterVec
	takeover     *metrics.Histogram
	waiting      *metrics.GaugeVec
	ledgerErrors *metrics.Counter
	agentCalls   *metrics.CounterVec
	agentUp      *metrics.GaugeVec
	questions    *metrics.CounterVec
	blocked      *metrics.GaugeVec
	fenced       *metrics.CounterVec
	podsDeleted  *metrics.Counter
	polls        *metrics.CounterVec
	pollAge      *metrics.Gauge
	pollPeriod   *metrics.Gauge

	mu          sync.Mutex
	waitingSeen map[string]bool           // the reasons that waiting has a series for
	brakes      map[string]failover.Brake // by node
}

// NewMetrics registers every metric in a registry of its own, beside the Go
// runtime's and client-go's.
func NewMetrics() *Metrics {
	m := &Metrics{
		// The name is set once the driver has told it.
		CSIMetricsManager: csimetrics.NewCSIMetricsManagerForSidecar(""),
		decisions: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "csi_fencepost_decisions_total",
			Help:           "Judged calls by call (ControllerPublishVolume, ControllerUnpublishVolume), decision and reason. In mode Observe, what Enforce would have decided.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"call", "decision", "reason"}),
		takeover: metrics.NewHistogram(&metrics.HistogramOpts{
			Name: "csi_fencepost_takeover_duration_seconds",
			Help: "Duration of the calls that took a volume over from another node and succeeded, from the call's arrival to its answer.",
			// From a fast local array to the longest deadline an attacher is given.
			Buckets:        []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 15, 30, 60, 120},
			StabilityLevel: metrics.ALPHA,
		}),
		waiting: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name:           "csi_fencepost_waiting_volumes",
			Help:           "Volumes whose publish or unpublish was refused and that still wait, by the reason of the last refusal.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"reason"}),
		ledgerErrors: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "csi_fencepost_ledger_write_errors_total",
			Help:           "Writes of a volume's ledger that failed, lost races not counted.",
			StabilityLevel: metrics.ALPHA,
		}),
		agentCalls: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "csi_fencepost_fence_operations_total",
			Help:           "Calls of fence agents by agent, action (status, off, on) and result (of status: on, off, unclear, error; of the others: sent, error).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"agent", "action", "result"}),
		agentUp: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name:           "csi_fencepost_agent_up",
			Help:           "Whether the agent's last call ended without an error. An agent that was never called has no series.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"agent"}),
		questions: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "csi_fencepost_power_questions_total",
			Help:           "Questions to csi-fencepost failover whether a machine is on (fencing.apart), by result (on, off, unclear, unanswered).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
		blocked: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name:           "csi_fencepost_fencing_blocked",
			Help:           "Nodes that are due to be fenced and are not, by the reason.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"reason"}),
		fenced: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "csi_fencepost_nodes_fenced_total",
			Help:           "Nodes that were switched off or cut off from their storage, by the kind of the proof.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"kind"}),
		podsDeleted: metrics.NewCounter(&metrics.CounterOpts{
			Name:           "csi_fencepost_pods_deleted_total",
			Help:           "Pods of fenced nodes that were deleted by force, so that they start elsewhere.",
			StabilityLevel: metrics.ALPHA,
		}),
		polls: metrics.NewCounterVec(&metrics.CounterOpts{
			Name:           "csi_fencepost_power_polls_total",
			Help:           "Questions whether a node is on that were asked whatever its lease says (poll), by result (on, off, unclear).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
		pollAge: metrics.NewGauge(&metrics.GaugeOpts{
			Name:           "csi_fencepost_power_poll_age_seconds",
			Help:           "Age of the oldest answer of the nodes that are asked whatever their leases say. 0 where none is.",
			StabilityLevel: metrics.ALPHA,
		}),
		pollPeriod: metrics.NewGauge(&metrics.GaugeOpts{
			Name:           "csi_fencepost_power_poll_period_seconds",
			Help:           "How often each of these nodes is asked: as configured, or less often where fencing.pollsPerSecond does not do for all. 0 where none is.",
			StabilityLevel: metrics.ALPHA,
		}),
		waitingSeen: map[string]bool{},
		brakes:      map[string]failover.Brake{},
	}
	m.GetRegistry().MustRegister(m.decisions, m.takeover, m.waiting, m.ledgerErrors, m.agentCalls, m.agentUp, m.questions, m.blocked, m.fenced, m.podsDeleted, m.polls, m.pollAge, m.pollPeriod)
	m.begin()
	m.WithAdditionalRegistry(legacyregistry.DefaultGatherer)
	return m
}

// begin makes the series whose increase alerts look for: one is only seen from a
// 0 on. Those of the agents are made with them (meter).
func (m *Metrics) begin() {
	for _, kind := range []fence.Kind{fence.PowerReading, fence.StorageFence} {
		m.fenced.WithLabelValues(string(kind))
	}
	for _, result := range []string{agent.On.String(), agent.Off.String(), agent.Unclear.String(), unanswered} {
		m.questions.WithLabelValues(result)
	}
}

// knows makes the series of an agent's calls.
func (m *Metrics) knows(agent string) {
	for action, results := range map[string][]string{"status": {"on", "off", "unclear", "error"}, "off": {"sent", "error"}, "on": {"sent", "error"}} {
		for _, result := range results {
			m.agentCalls.WithLabelValues(agent, action, result)
		}
	}
}

// ReadyIs has csi_fencepost_ready tell whether every check of /readyz passes.
// It is asked at each scrape.
func (m *Metrics) ReadyIs(r *Readiness) {
	m.GetRegistry().RawMustRegister(metrics.NewGaugeFunc(&metrics.GaugeOpts{
		Name:           "csi_fencepost_ready",
		Help:           "Whether every check of /readyz passes: the driver, the guard's caches, the socket.",
		StabilityLevel: metrics.ALPHA,
	}, func() float64 {
		if ready, _ := r.checked(); ready {
			return 1
		}
		return 0
	}))
}

// Decisions counts one judged call.
func (m *Metrics) Decisions(call, decision, reason string) {
	m.decisions.WithLabelValues(call, decision, reason).Inc()
}

// TakeoverDone records how long a successful takeover's call took.
func (m *Metrics) TakeoverDone(d time.Duration) { m.takeover.Observe(d.Seconds()) }

// Waiting replaces the numbers of waiting volumes. A reason that is no longer
// named keeps its series at 0, so that a graph shows its end.
func (m *Metrics) Waiting(byReason map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for reason := range byReason {
		m.waitingSeen[reason] = true
	}
	for reason := range m.waitingSeen {
		m.waiting.WithLabelValues(reason).Set(float64(byReason[reason]))
	}
}

// LedgerWriteError counts one failed write of a ledger.
func (m *Metrics) LedgerWriteError() { m.ledgerErrors.Inc() }

// agentCall counts one call of a fence agent.
func (m *Metrics) agentCall(agent, action, result string, ok bool) {
	m.agentCalls.WithLabelValues(agent, action, result).Inc()
	up := 0.0
	if ok {
		up = 1
	}
	m.agentUp.WithLabelValues(agent).Set(up)
}

const unanswered = "unanswered"

// question counts one question to csi-fencepost failover.
func (m *Metrics) question(state agent.State, err error) {
	result := state.String()
	if err != nil {
		result = unanswered
	}
	m.questions.WithLabelValues(result).Inc()
}

// FencingBlocked notes what keeps a node from being fenced.
func (m *Metrics) FencingBlocked(node string, reason failover.Brake) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if was := m.brakes[node]; was != failover.NoBrake && was != reason {
		m.blocked.WithLabelValues(string(was)).Dec()
		delete(m.brakes, node)
	}
	if reason != failover.NoBrake && m.brakes[node] == failover.NoBrake {
		m.blocked.WithLabelValues(string(reason)).Inc()
		m.brakes[node] = reason
	}
}

// NodeFenced counts a node that was fenced.
func (m *Metrics) NodeFenced(kind fence.Kind) { m.fenced.WithLabelValues(string(kind)).Inc() }

// PodsDeleted counts pods that were deleted by force.
func (m *Metrics) PodsDeleted(n int) { m.podsDeleted.Add(float64(n)) }

// PowerPolled counts an answer about a node that was asked whatever its lease says.
func (m *Metrics) PowerPolled(s agent.State) { m.polls.WithLabelValues(s.String()).Inc() }

// Polling tells how nodes are polled now.
func (m *Metrics) Polling(p failover.Polling) {
	m.pollAge.Set(p.Oldest.Seconds())
	m.pollPeriod.Set(p.Period.Seconds())
}
