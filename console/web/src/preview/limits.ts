// Limits of tables in previews.
/** Rows of a Parquet file that a preview shows. */
export const ROWS = 20;
/** Columns of a Parquet file whose values a preview shows. */
export const COLUMNS = 30;
