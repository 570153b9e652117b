"""What `caption-assets doctor` looks at, part by part. No Dagster here; nothing stays of what a probe writes."""
