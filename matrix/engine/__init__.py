"""Where jobs run: on this host, on Slurm, in GitHub Actions."""
