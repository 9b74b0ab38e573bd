"""How a job is drawn. Every view reads the job and owns nothing."""
