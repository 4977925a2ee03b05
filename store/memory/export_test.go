package memory

// BytesFor is the memory for n keys.
func BytesFor(n int) int64 { return int64(n) * bytesPerKey }

// MaxBytesOf is the most memory of a store with these options.
func MaxBytesOf(options ...Option) int64 {
	o := settings{maxKeys: defaultMaxKeys}
	for _, option := range options {
		option(&o)
	}
	return o.bytes()
}
