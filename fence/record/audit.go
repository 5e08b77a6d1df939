package record

import "time"

func now() string { return time.Now().UTC().Format(time.RFC3339) }

// audit adds an entry to the trail. It is written with the change itself.
func (r *Record) audit(actor, action, detail string) {
	r.Operation.Latest = false
	r.Audit = append(r.Audit, Audit{At: now(), Actor: clip(actor), Action: action, Detail: clip(detail)})
}

// Note adds an entry to the audit trail. For the change of an Update.
func (r *Record) Note(actor, action, detail string) { r.audit(actor, action, detail) }
