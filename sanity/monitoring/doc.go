// Package monitoring proves deploy/monitoring with Prometheus's own tools: its
// parser and promtool, built from a module of their own (tools), the first time
// for minutes.
//
//	alerts.yaml ──promtool check rules──▶
//	alerts_test.yaml ──promtool test rules──▶
//	dashboard.json ──parser──▶ metrics and labels ──┐
//	alerts.yaml ──────parser──────────────────────┤
//	csi-fencepost on a real API server ──/metrics──┴▶ are they there? (sanity/kubeapi)
package monitoring
