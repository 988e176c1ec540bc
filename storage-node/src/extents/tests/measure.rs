//! What extents cost. Run with `--ignored --nocapture`; the figures are for reading.
