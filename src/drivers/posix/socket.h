// SPDX-License-Identifier: Apache-2.0
// socket.h: TCP sockets, all non-blocking and closed on exec, and by forked children.
//
// The *_all functions and connect_to() wait with poll() until a deadline; the rest never waits.
#pragma once

#include <cstddef>
#include <string>

#include "base/clock.h"
#include "base/port_range.h"
#include "ciuic/status.h"
#include "drivers/posix/address.h"
#include "drivers/posix/unique_fd.h"

namespace ciuic::posix {

// Listens at the address; port 0: one that is free, local_address() tells which. kResource where
// the port is in use, with the process that has it where /proc tells. "::" takes IPv4 too.
Result<UniqueFd> listen_at(const Address& address, int backlog = 1024);

// Listens at the numeric address, at a port of the range that is free. kResource where none is; the
// message names CIUIC_PORT_RANGE, which the range is from.
Result<UniqueFd> listen_within(PortRange ports, const std::string& text);

// Takes one waiting connection; an invalid fd where there is none. kResource: one waits, and no
// descriptor is left for it.
Result<UniqueFd> accept_from(int listener);

// Another descriptor of the same socket.
Result<UniqueFd> copy_socket(int fd);

// Begins to connect. It is done when the socket is writable, and connect_result() says how.
Result<UniqueFd> start_connect(const Address& address);
Status connect_result(int fd, const Address& address);

// Connects; kTimeout at the deadline.
Result<UniqueFd> connect_to(const Address& address, TimeNs deadline);

Result<Address> local_address(int fd);
Result<Address> peer_address(int fd);

// The address that this host would use as source towards `destination`, by its routes. Sends
// nothing. An error where there is no route.
Result<Address> source_address_towards(const Address& destination);

void set_no_delay(int fd);

// Bytes that the kernel has taken and not sent yet, since the peer takes no more.
size_t unsent_bytes(int fd);

// How many bytes went; 0: none can now. kPeerLost: the connection is gone.
Result<size_t> send_some(int fd, const void* data, size_t bytes);
Result<size_t> receive_some(int fd, void* data, size_t bytes);

// kTimeout: the deadline came first. kPeerLost: the connection is gone, or ended early.
Status send_all(int fd, const void* data, size_t bytes, TimeNs deadline);
Status receive_all(int fd, void* data, size_t bytes, TimeNs deadline);

// Waits for `events` of poll(2) on one descriptor; errors count as ready. False: the deadline came.
Result<bool> wait_for(int fd, short events, TimeNs deadline);

// poll(2)'s time-out for a deadline: at most `limit_ms`, never rounded down.
int poll_timeout_ms(TimeNs deadline, TimeNs now, int limit_ms = 1 << 30);

}  // namespace ciuic::posix
