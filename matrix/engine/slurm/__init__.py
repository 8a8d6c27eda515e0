"""The engine of a Slurm cluster: a job is an sbatch, and our supervisor runs inside the allocation."""
