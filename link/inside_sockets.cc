#include "link/inside_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/net/loopback.h"
#include "base/os/files.h"
#include "base/wire/command_mark.h"
#include "base/wire/network_line.h"

namespace moorage::link {
namespace {

constexpr int kBacklog = 128;
constexpr const char* kOwnNamespace = "/proc/thread-self/ns/net";
constexpr const char* kTcpTable = "/proc/thread-self/net/tcp";
constexpr const char* kListens = "0A";  // TCP_LISTEN in that table
const base::RelayPlace kResolver{base::kResolverInside, base::kResolverPort};

sockaddr_in address_of(const base::RelayPlace& place) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(place.port);
  inet_pton(AF_INET, place.address.c_str(), &address.sin_addr);
  return address;
}

base::Fd new_socket(int type) {
  return base::Fd(::socket(AF_INET, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

InsideSockets::Made bound_socket(int type, const base::RelayPlace& place) {
  base::Fd socket = new_socket(type);
  const int on = 1;
  // Otherwise connections of a former egress, in TIME_WAIT, would hold the place.
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const sockaddr_in address = address_of(place);
  const bool bound =
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  if (!bound || (type == SOCK_STREAM && ::listen(socket.get(), kBacklog) != 0)) return {{}, errno};
  return {std::move(socket), 0};
}

// As from the address that stands for a command.
bool bind_to_mark(int socket, uint32_t mark) {
  if (mark == 0) return true;
  sockaddr_storage address{};
  const uint32_t size = base::marked_address(mark).to_socket(0, address);
  return bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0;
}

InsideSockets::Made connected_socket(const base::RelayPlace& place, uint32_t mark) {
  base::Fd socket = new_socket(SOCK_STREAM);
  if (!bind_to_mark(socket.get(), mark)) return {{}, errno};
  const sockaddr_in address = address_of(place);
  const int result =
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (result != 0 && errno != EINPROGRESS) return {{}, errno};
  // On a loopback device most answers are there by now.
  int refused = 0;
  socklen_t size = sizeof refused;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &refused, &size);
  if (refused != 0) return {{}, refused};
  return {std::move(socket), 0};
}

// "0301C612:01BB", the address as the kernel stores it.
std::string place_in(const std::string& text) {
  unsigned address = 0;
  unsigned port = 0;
  if (std::sscanf(text.c_str(), "%8X:%4X", &address, &port) != 2) return {};
  const in_addr number{address};
  std::array<char, INET_ADDRSTRLEN> name{};
  inet_ntop(AF_INET, &number, name.data(), name.size());
  return std::string(name.data()) + " " + std::to_string(port);
}

template <typename Work>
void on_thread(const Work& work) {
  std::exception_ptr failure;
  std::thread([&] {
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

StandIn make_stand_in() {
  StandIn network;
  on_thread([&network] {
    base::check_allowance(unshare(CLONE_NEWNET), "create a network namespace",
                          "user.max_net_namespaces");
    base::set_up_sandbox_network();
    network.name_space = base::open_file(kOwnNamespace, O_RDONLY);
    network.udp = bound_socket(SOCK_DGRAM, kResolver).socket;
    network.tcp = bound_socket(SOCK_STREAM, kResolver).socket;
    if (!network.udp || !network.tcp) base::throw_errno("listen at the resolver's address");
  });
  return network;
}

void send_resolver(int line, const StandIn& network) {
  const std::array fds{network.udp.get(), network.tcp.get()};
  base::send_with_fds(line, base::kLineDns, fds);
}

void send_question(int client, std::string_view message, uint32_t mark) {
  sockaddr_in to = address_of(kResolver);
  sockaddr_storage from{};
  base::marked_address(mark).to_socket(0, from);
  iovec bytes{const_cast<char*>(message.data()), message.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(in_pktinfo))> control{};
  msghdr header{};
  header.msg_name = &to;
  header.msg_namelen = sizeof to;
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* source = CMSG_FIRSTHDR(&header);
  source->cmsg_level = IPPROTO_IP;
  source->cmsg_type = IP_PKTINFO;
  source->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
  in_pktinfo chosen{};
  chosen.ipi_spec_dst = reinterpret_cast<const sockaddr_in&>(from).sin_addr;
  std::memcpy(CMSG_DATA(source), &chosen, sizeof chosen);
  sendmsg(client, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
}

InsideSockets::InsideSockets(base::Fd name_space, const std::function<void()>& limit) {
  std::exception_ptr failure;
  bool began = false;
  thread_ = std::thread([&, held = std::move(name_space)]() mutable {
    try {
      base::check(setns(held.get(), CLONE_NEWNET), "enter a network namespace");
      held.reset();
      limit();
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      began = true;
      over_ = failure != nullptr;
    }
    changed_.notify_all();
    serve();
  });
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return began; });
  }
  if (!failure) return;
  thread_.join();
  std::rethrow_exception(failure);
}

InsideSockets::~InsideSockets() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void InsideSockets::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return over_ || work_; });
    if (over_) return;
    (*work_)();
    work_ = nullptr;
    changed_.notify_all();
  }
}

void InsideSockets::run(const std::function<void()>& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !work_; });
}

InsideSockets::Made InsideSockets::listen(const base::RelayPlace& place) {
  Made made;
  run([&] { made = bound_socket(SOCK_STREAM, place); });
  return made;
}

InsideSockets::Made InsideSockets::connect(const base::RelayPlace& place, uint32_t mark) {
  Made made;
  run([&] { made = connected_socket(place, mark); });
  return made;
}

// Not connected: then its answers would come to one address only.
InsideSockets::Made InsideSockets::resolver_client() {
  Made made;
  run([&] { made = bound_socket(SOCK_DGRAM, {"0.0.0.0", 0}); });
  return made;
}

std::vector<base::RelayPlace> InsideSockets::listeners() {
  std::string table;
  std::exception_ptr failure;
  run([&] {
    try {
      table = base::read_file(kTcpTable);
    } catch (const Error&) {
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  std::vector<base::RelayPlace> places;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string number, local, remote, state;
    if (!(fields >> number >> local >> remote >> state) || state != kListens) continue;
    const auto place = base::read_place(place_in(local));
    if (place && *place != kResolver) places.push_back(*place);
  }
  return places;
}

}  // namespace moorage::link
