// The network of a sandbox: `lo` alone, to which a whole range of addresses belongs
// (docs/decisions/0360). Sets up the network namespace of the calling thread, through rtnetlink(7);
// needs CAP_NET_ADMIN over it.
#pragma once

namespace moorage::base {

// Brings `lo` up and makes 198.18.0.0/15 its own: each address of it can be bound and connected to.
// Done before: no error.
void set_up_sandbox_loopback();
// Defaults of every socket in it: each port can be bound without a capability, since not every
// warden has one and rules may name port 22; and TCP does not pace what it sends, as the host's
// choice for far networks (BBR) does at more than twice the cost.
void set_sandbox_socket_defaults();
// Both.
void set_up_sandbox_network();

}  // namespace moorage::base
