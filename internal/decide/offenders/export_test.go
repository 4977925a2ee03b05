package offenders

// Lost returns what the metric headgate_offenders_lost_total counts.
func Lost(w *Watch) (full, store, unsaved int64) {
	return w.stats.full.Load(), w.stats.uncounted.Load(), w.stats.unbanned.Load()
}
