// The network of a sandbox: `lo` alone, to which a whole range of addresses belongs
// (docs/decisions/0360). Sets up the network namespace of the calling thread, through rtnetlink(7);
// needs CAP_NET_ADMIN over it.
#pragma once

namespace moorage::base {

// Brings `lo` up and makes 198.18.0.0/15 its own: each address of it can be bound and connected to.
// Done before: no error.
void set_up_sandbox_loopback();
// Every port can be bound without a capability (net.ipv4.ip_unprivileged_port_start): not every
// warden has one, and rules may name port 22.
void make_every_port_unprivileged();

}  // namespace moorage::base
