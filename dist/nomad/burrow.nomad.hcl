# A bridge on each client of Nomad, as a program of the host: docs/howto/deploy.md.
#
# The client needs the driver raw_exec, which runs it as root, and /usr/local/bin/host-bridge. NATS is not part of it:
# run three servers with dist/systemd/nats-server.service, or as a job of your own.

variable "nats_servers" {
  description = "Addresses of the NATS servers, with commas between them and without names or passwords."
  type        = string
  default     = "tls://nats1.example.org:4222,tls://nats2.example.org:4222,tls://nats3.example.org:4222"
}

job "burrow" {
  type = "system"

  # One host at a time, and by hand: a bridge that Nomad ends takes the sandboxes of its host with it. Drain the node
  # of the fleet first.
  update {
    max_parallel     = 1
    health_check     = "checks"
    min_healthy_time = "10s"
  }

  group "bridge" {
    network {
      mode = "host"
      port "api" {
        static = 5555
      }
    }

    service {
      name     = "burrow"
      port     = "api"
      provider = "nomad"

      check {
        type     = "http"
        protocol = "https"
        path     = "/readyz"
        interval = "5s"
        timeout  = "2s"
        # The check asks the host's address; the certificate may be for its name.
        tls_skip_verify = true
      }
    }

    restart {
      attempts = 5
      interval = "1m"
      delay    = "1s"
      mode     = "delay"
    }

    task "bridge" {
      driver       = "raw_exec"
      user         = "root"
      kill_timeout = "60s"

      config {
        command = "/usr/local/bin/host-bridge"
        args    = ["serve"]
      }

      # What differs between hosts is in its /etc/burrow/burrow.toml: certificates, credentials, labels.
      env {
        BURROW_CONFIG         = "/etc/burrow/burrow.toml"
        BURROW_STATE_DIR      = "/var/lib/burrow"
        BURROW_RUNTIME_DIR    = "/run/burrow"
        BURROW_SERVER_LISTEN  = "${NOMAD_IP_api}:5555,127.0.0.1:5555"
        BURROW_FLEET_SERVERS  = var.nats_servers
        BURROW_FLEET_NODE     = "${node.unique.name}"
        BURROW_FLEET_ADDRESS  = "https://${attr.unique.hostname}:5555"
        BURROW_FLEET_REPLICAS = "3"
      }

      resources {
        cpu    = 500
        memory = 512
      }
    }
  }
}
