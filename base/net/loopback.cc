#include "base/net/loopback.h"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::base {
namespace {

constexpr int kLoopbackIndex = 1;  // in every network namespace

struct AddRoute {
  nlmsghdr header{};
  rtmsg route{};
  rtattr destination_header{};
  unsigned char destination[4] = {198, 18, 0, 0};
  rtattr device_header{};
  int device = kLoopbackIndex;
};

struct Acknowledgement {
  nlmsghdr header{};
  nlmsgerr error{};
};

void bring_up_loopback() {
  const Fd socket(check(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "create a socket"));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  check(ioctl(socket.get(), SIOCGIFFLAGS, &request), "read the state of lo");
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  check(ioctl(socket.get(), SIOCSIFFLAGS, &request), "bring lo up");
}

void set_parameter(const std::string& name, const std::string& value) {
  const std::string path = "/proc/sys/net/ipv4/" + name;
  const Fd file(check(open(path.c_str(), O_WRONLY | O_CLOEXEC), "open " + path));
  write_all(file.get(), value);
}

}  // namespace

void set_up_sandbox_loopback() {
  bring_up_loopback();
  AddRoute request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_NEWROUTE;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_REPLACE | NLM_F_ACK;
  request.route.rtm_family = AF_INET;
  request.route.rtm_dst_len = 15;
  request.route.rtm_table = RT_TABLE_LOCAL;
  request.route.rtm_protocol = RTPROT_STATIC;
  request.route.rtm_scope = RT_SCOPE_HOST;
  request.route.rtm_type = RTN_LOCAL;
  request.destination_header = {RTA_LENGTH(sizeof request.destination), RTA_DST};
  request.device_header = {RTA_LENGTH(sizeof request.device), RTA_OIF};
  const Fd netlink(
      check(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE), "create a netlink socket"));
  check(send(netlink.get(), &request, sizeof request, 0), "add a route");
  Acknowledgement answer;
  check(recv(netlink.get(), &answer, sizeof answer, 0), "add a route");
  if (answer.error.error != 0) throw_errno("add a route", -answer.error.error);
}

void set_sandbox_socket_defaults() {
  set_parameter("ip_unprivileged_port_start", "0");
  set_parameter("tcp_congestion_control", "reno");  // every kernel has it
}

void set_up_sandbox_network() {
  set_up_sandbox_loopback();
  set_sandbox_socket_defaults();
}

}  // namespace moorage::base
