"""The simulated rack: real sshd, systemd, Docker engines and registries; simulated NPUs. See README.md here."""
