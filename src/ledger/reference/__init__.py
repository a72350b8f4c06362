"""The mathematics in its plainest form: what right answers are held against. Clear before fast, always in float64."""
