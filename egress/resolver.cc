#include "egress/resolver.h"

#include <ares.h>
#include <netdb.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "base/error.h"

namespace moorage::egress {
namespace {

constexpr int kLeastTtlS = 5;
constexpr int kMostTtlS = 300;
constexpr int kRefusalTtlS = 5;  // of names that do not exist or cannot be asked for
constexpr std::chrono::milliseconds kIdlePoll{1000};

void check_ares(int status, const std::string& what) {
  if (status == ARES_SUCCESS) return;
  throw Error(status == ARES_ENOMEM ? Code::resource_exhausted : Code::invalid_argument,
              "cannot " + what + ": " + ares_strerror(status));
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ",") + part;
  return text;
}

}  // namespace

// c-ares with its sockets in our loop.
struct Resolver::Channel {
  Channel(base::Loop& event_loop, const ResolverOptions& options)
      : loop(event_loop), timer(event_loop) {
    static std::once_flag once;
    std::call_once(once, [] { check_ares(ares_library_init(ARES_LIB_INIT_ALL), "start c-ares"); });
    ares_options settings{};
    char lookups[] = "b";  // no file: the process has none
    settings.flags = ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES;
    settings.timeout = options.timeout_ms;
    settings.tries = options.tries;
    settings.lookups = lookups;
    settings.sock_state_cb_data = this;
    settings.sock_state_cb = [](void* self, ares_socket_t fd, int readable, int writable) {
      static_cast<Channel*>(self)->watch(fd, readable != 0, writable != 0);
    };
    check_ares(ares_init_options(&ares, &settings,
                                 ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
                                     ARES_OPT_LOOKUPS | ARES_OPT_DOMAINS | ARES_OPT_SOCK_STATE_CB),
               "start the resolver");
    const int status = ares_set_servers_ports_csv(ares, joined(options.servers).c_str());
    if (status != ARES_SUCCESS) ares_destroy(ares);
    check_ares(status, "use the resolvers " + joined(options.servers));
  }
  ~Channel() { ares_destroy(ares); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void watch(int fd, bool readable, bool writable) {
    const uint32_t events = (readable ? EPOLLIN : 0U) | (writable ? EPOLLOUT : 0U);
    if (events == 0) {
      watches.erase(fd);
    } else if (const auto found = watches.find(fd); found != watches.end()) {
      found->second->set_events(events);
    } else {
      watches[fd] = std::make_unique<base::Watch>(
          loop, fd, events, [this, fd](uint32_t happened) { process(fd, happened); });
    }
  }
  void process(int fd, uint32_t events) {
    const bool in = (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0;
    const bool out = (events & EPOLLOUT) != 0;
    ares_process_fd(ares, in ? fd : ARES_SOCKET_BAD, out ? fd : ARES_SOCKET_BAD);
    plan_timeout();
  }
  void plan_timeout() {
    timeval most{kIdlePoll.count() / 1000, 0};
    timeval wait{};
    const timeval* due = ares_timeout(ares, &most, &wait);
    if (watches.empty() || due == nullptr) return timer.stop();
    timer.start(std::chrono::milliseconds(due->tv_sec * 1000 + due->tv_usec / 1000 + 1), [this] {
      ares_process_fd(ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
      plan_timeout();
    });
  }

  base::Loop& loop;
  ares_channel ares = nullptr;
  std::map<int, std::unique_ptr<base::Watch>> watches;
  base::Timer timer;
};

// One question on its way; c-ares calls back exactly once for each.
struct Resolver::Question {
  Resolver& resolver;
  std::string name;

  static void done(void* context, int status, int, ares_addrinfo* result) {
    const std::unique_ptr<Question> question(static_cast<Question*>(context));
    const std::unique_ptr<ares_addrinfo, decltype(&ares_freeaddrinfo)> owned(result,
                                                                             ares_freeaddrinfo);
    if (status == ARES_EDESTRUCTION) return;
    std::vector<base::IpAddress> addresses;
    int ttl_s = kMostTtlS;
    for (auto* node = result != nullptr ? result->nodes : nullptr; node != nullptr;
         node = node->ai_next) {
      if (const auto address = base::address_of(*node->ai_addr)) addresses.push_back(*address);
      ttl_s = std::min(ttl_s, node->ai_ttl);
    }
    Resolver& resolver = question->resolver;
    if (!addresses.empty())
      return resolver.answer(question->name, resolver.judged(std::move(addresses)), ttl_s);
    if (status == ARES_ENOTFOUND || status == ARES_ENODATA || status == ARES_SUCCESS) {
      return resolver.answer(
          question->name, {Resolution::Kind::no_such_name, {}, question->name + " does not exist"},
          kRefusalTtlS);
    }
    resolver.answer(
        question->name,
        {Resolution::Kind::failed,
         {},
         "the host's resolver did not answer for " + question->name + ": " + ares_strerror(status)},
        0);
  }
};

Resolver::Resolver(base::Loop& loop) : loop_(loop) {}
Resolver::~Resolver() = default;

void Resolver::configure(ResolverOptions options) {
  auto channel = options.servers.empty() ? nullptr : std::make_unique<Channel>(loop_, options);
  channel_ = std::move(channel);  // ends the questions of the former one without an answer
  options_ = std::move(options);
  kept_.clear();
  const auto waiting = std::exchange(waiting_, {});
  for (const auto& [name, all] : waiting) {
    waiting_[name] = all;
    ask(name);
  }
}

Resolver::Ticket Resolver::resolve(const std::string& name, Done done) {
  auto ticket = std::make_shared<Done>(std::move(done));
  if (const auto known = kept_.find(name); known != kept_.end()) {
    if (known->second.until_ms > base::monotonic_ms()) {
      const Resolution copy = known->second.resolution;
      (*ticket)(copy);
      return ticket;
    }
    kept_.erase(known);
  }
  if (const auto asked = waiting_.find(name); asked != waiting_.end()) {
    asked->second.push_back(ticket);
    return ticket;
  }
  if (waiting_.size() >= kMaxQuestions) {
    (*ticket)({Resolution::Kind::failed, {}, "too many names are being resolved"});
    return ticket;
  }
  waiting_[name].push_back(ticket);
  ask(name);
  return ticket;
}

void Resolver::ask(const std::string& name) {
  if (const auto own = options_.hosts.find(name); own != options_.hosts.end())
    return answer(name, judged(own->second), kMostTtlS);
  if (!channel_) {
    return answer(name, {Resolution::Kind::failed, {}, "the host has no resolver configured"}, 0);
  }
  ares_addrinfo_hints hints{};
  hints.ai_flags = ARES_AI_NOSORT | ARES_AI_NUMERICSERV;
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  // It may answer before it returns, and then replaces nothing of this function's.
  Channel& channel = *channel_;
  ares_getaddrinfo(channel.ares, name.c_str(), nullptr, &hints, &Question::done,
                   std::make_unique<Question>(Question{*this, name}).release());
  channel.plan_timeout();
}

Resolution Resolver::judged(std::vector<base::IpAddress> addresses) const {
  Resolution result{Resolution::Kind::found, {}, {}};
  for (const base::IpAddress& address : addresses) {
    std::string_view reason = base::not_public(address);
    if (reason.empty() && std::ranges::find(options_.host, address) != options_.host.end())
      reason = "an address of the host itself";
    const bool opened = std::ranges::any_of(options_.reachable, [&address](const auto& range) {
      return base::contains(range, address);
    });
    if (reason.empty() || opened) {
      result.addresses.push_back(address);
    } else {
      result.why = address.str() + " is " + std::string(reason);
      if (reason.starts_with("a private address") || reason.starts_with("a documentation address"))
        result.why += "; network.reachable of the daemon's settings opens ranges";
    }
  }
  if (result.addresses.empty()) result.kind = Resolution::Kind::forbidden;
  std::ranges::stable_partition(result.addresses, [](const auto& address) { return address.v4; });
  return result;
}

void Resolver::answer(const std::string& name, Resolution resolution, int ttl_s) {
  const auto found = waiting_.extract(name);
  if (ttl_s > 0 || resolution.kind == Resolution::Kind::found)
    keep(name, resolution, std::clamp(ttl_s, kLeastTtlS, kMostTtlS));
  if (found.empty()) return;
  for (const auto& one : found.mapped()) {
    if (const Ticket ticket = one.lock()) (*ticket)(resolution);
  }
}

void Resolver::keep(const std::string& name, const Resolution& resolution, int ttl_s) {
  const int64_t now = base::monotonic_ms();
  if (kept_.size() >= kMaxKept)
    std::erase_if(kept_, [now](const auto& one) { return one.second.until_ms <= now; });
  if (kept_.size() >= kMaxKept) kept_.erase(kept_.begin());
  kept_[name] = {resolution, now + ttl_s * 1000LL};
}

}  // namespace moorage::egress
