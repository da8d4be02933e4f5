#include "egress/socket_owner.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <string_view>

namespace moorage::egress {
namespace {

constexpr int kMaxStale = 16;  // answers to earlier questions, which nobody read

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 question;
};

void put(const SocketEnd& end, __be16& port, __be32 (&address)[4]) {
  port = htons(end.port);
  std::memcpy(address, end.address.bytes.data(), sizeof address[0]);
}

uint64_t cgroup_in(std::string_view message) {
  nlmsghdr header;
  if (message.size() < sizeof header + sizeof(inet_diag_msg)) return 0;
  std::memcpy(&header, message.data(), sizeof header);
  if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || header.nlmsg_len > message.size()) return 0;
  message = message.substr(0, header.nlmsg_len);
  message.remove_prefix(NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(inet_diag_msg)));
  while (message.size() >= sizeof(rtattr)) {
    rtattr attribute;
    std::memcpy(&attribute, message.data(), sizeof attribute);
    if (attribute.rta_len < sizeof attribute || attribute.rta_len > message.size()) return 0;
    if (attribute.rta_type == INET_DIAG_CGROUP_ID &&
        attribute.rta_len == RTA_LENGTH(sizeof(uint64_t))) {
      uint64_t id = 0;
      std::memcpy(&id, message.data() + RTA_LENGTH(0), sizeof id);
      return id;
    }
    message.remove_prefix(std::min<size_t>(RTA_ALIGN(attribute.rta_len), message.size()));
  }
  return 0;
}

}  // namespace

uint64_t cgroup_of_socket(const Fd& diag, int protocol, const SocketEnd& local,
                          const SocketEnd& remote) {
  static uint32_t serial = 0;
  if (!diag) return 0;
  Request request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.header.nlmsg_seq = ++serial;
  request.question.sdiag_family = AF_INET;
  request.question.sdiag_protocol = static_cast<uint8_t>(protocol);
  request.question.idiag_states = ~0U;
  // For UDP, the kernel takes the ends the other way round (udp_dump_one() of net/ipv4/udp_diag.c).
  const bool swapped = protocol == IPPROTO_UDP;
  put(swapped ? remote : local, request.question.id.idiag_sport, request.question.id.idiag_src);
  put(swapped ? local : remote, request.question.id.idiag_dport, request.question.id.idiag_dst);
  request.question.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  request.question.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (send(diag.get(), &request, sizeof request, MSG_DONTWAIT) < 0) return 0;
  for (int i = 0; i < kMaxStale; ++i) {
    std::array<char, 4096> bytes;
    const ssize_t size = recv(diag.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (size < static_cast<ssize_t>(sizeof(nlmsghdr))) return 0;
    nlmsghdr header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.nlmsg_seq == serial) return cgroup_in({bytes.data(), static_cast<size_t>(size)});
  }
  return 0;
}

}  // namespace moorage::egress
