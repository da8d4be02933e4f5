#include "egress/gateway.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/wire/command_mark.h"
#include "base/wire/network_line.h"

namespace moorage::egress {
namespace {

using base::Verdict;

constexpr uint32_t kTtlS = 60;
// The resolver's own deadlines are shorter; a frozen warden has none.
constexpr std::chrono::milliseconds kPatience{20'000};
constexpr int kAcceptsInARow = 16;
// Listened at for every name, to report what is refused there: the kernel alone would only answer
// "connection refused".
constexpr uint16_t kReportedPorts[] = {22, 80, 443};

void reset(const Fd& socket) {
  const linger now{1, 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

std::vector<base::IpAddress> parsed(const std::vector<std::string>& texts) {
  std::vector<base::IpAddress> addresses;
  for (const std::string& text : texts) {
    const auto address = base::parse_address(text);
    if (!address) throw Error(Code::invalid_argument, "'" + text + "' is not an address");
    addresses.push_back(*address);
  }
  return addresses;
}

bool is_direct(const UpstreamProxy& proxy, const std::string& name) {
  return std::ranges::any_of(proxy.no_proxy, [&name](const std::string& host) {
    return host.starts_with('.') ? name == host.substr(1) || name.ends_with(host) : name == host;
  });
}

// "_http._tcp.HOST", by which programs ask for servers of a service, is about HOST (RFC 2782).
std::string_view host_of_service(std::string_view name) {
  while (name.starts_with('_') && name.find('.') != name.npos)
    name.remove_prefix(name.find('.') + 1);
  return name;
}

}  // namespace

GatewayOptions gateway_options(const base::NetworkSettings& settings) {
  GatewayOptions options{
      settings.workspace, settings.policy, settings.credentials, settings.push, {}, {},
      settings.limits};
  options.resolver.servers = settings.resolver.servers;
  for (const auto& [name, addresses] : settings.resolver.hosts)
    options.resolver.hosts[name] = parsed(addresses);
  for (const std::string& text : settings.resolver.host) {
    const auto address = base::parse_address(text);
    if (!address) throw Error(Code::invalid_argument, "'" + text + "' is not an address");
    options.resolver.host.push_back(*address);
  }
  for (const std::string& range : settings.resolver.reachable)
    options.resolver.reachable.push_back(base::parse_range(range));
  if (const auto& proxy = settings.proxy) {
    options.proxy =
        UpstreamProxy{parsed(proxy->addresses), proxy->port, proxy->authorization, proxy->no_proxy};
  }
  return options;
}

// From a question for an allowed name to its answer: resolve it, then listen at its ports.
struct Gateway::Question {
  explicit Question(base::Loop& loop) : timer(loop) {}
  DnsQuestion question;
  DnsService::Reply reply;
  uint64_t cgroup = 0;
  std::vector<uint16_t> ports;
  std::optional<base::IpAddress> address;
  size_t opening = 0;
  bool listens = false;
  Resolver::Ticket ticket;
  base::Timer timer;
  std::shared_ptr<bool> alive = std::make_shared<bool>(true);
};

struct Gateway::Dial {
  uint64_t cgroup = 0;
  bool brokered = false;
  Resolver::Ticket ticket;
  std::unique_ptr<Carrier> connection;
};

Gateway::Gateway(base::Loop& loop, Line::OnEnd on_end)
    : loop_(loop), on_line_end_(std::move(on_end)), broker_(loop), resolver_(loop) {}
Gateway::~Gateway() = default;

size_t Gateway::configure(GatewayOptions options) {
  options_ = std::move(options);
  broker_.configure(options_->workspace, options_->policy, options_->credentials, options_->push);
  meter_.set_limits(options_->limits);
  resolver_.configure(options_->resolver);
  std::erase_if(listeners_, [this](const auto& one) {
    return base::allowed_ports(options_->policy, one.first.first).empty();
  });
  size_t cut = 0;
  for (const Dial& dial : connections_) {
    const auto& host = dial.connection->host();
    const base::Decision decision = base::decide(options_->policy, host.name, host.port);
    const bool stays = dial.brokered == broker_.judges(host.name, host.port);
    if (decision.verdict == Verdict::allow && stays) continue;
    if (decision.verdict != Verdict::allow)
      note_refusal({host.name, host.port}, decision, dial.cgroup);
    dial.connection->abort();
    ++cut;
  }
  return cut;
}

void Gateway::set_line(Fd socket) {
  for (auto at = questions_.begin(); at != questions_.end();) {
    Question& question = *at++;
    if (question.opening > 0) fail(question, "the sandbox's warden did not answer");
  }
  line_ = std::make_unique<Line>(
      loop_, std::move(socket),
      [this](ResolverSockets sockets) {
        diag_ = std::move(sockets.diag);
        dns_.reset();
        dns_ = std::make_unique<DnsService>(
            loop_, std::move(sockets.udp), std::move(sockets.tcp),
            [this](const DnsQuestion& question, const DnsService::Asker& asker,
                   DnsService::Reply reply) { answer(question, asker, std::move(reply)); });
      },
      on_line_end_);
}

NetworkUse Gateway::use() const {
  NetworkUse use = meter_.use();
  use.names = names_.size();
  return use;
}

uint64_t Gateway::owner_of(int protocol, const SocketEnd& inside, const SocketEnd& ours) const {
  // On another machine the link chooses the address that stands for the command.
  return diag_ ? cgroup_of_socket(diag_, protocol, inside, ours) : base::mark_of(inside.address);
}

uint64_t Gateway::owner_of(const DnsService::Asker& asker) const {
  const SocketEnd ours{*base::parse_address(base::kResolverInside), base::kResolverPort};
  return owner_of(asker.tcp ? IPPROTO_TCP : IPPROTO_UDP, asker.end, ours);
}

void Gateway::note(base::SightingKind kind, const Place& place, const std::string& why,
                   uint64_t cgroup, bool quiet) {
  if (kind == base::SightingKind::refused) meter_.refused();
  Sighting sighting;
  sighting.kind = kind;
  sighting.host = place.first;
  sighting.port = place.second;
  sighting.why = why;
  sighting.cgroup = cgroup;
  sighting.quiet = quiet;
  ledger_.note(std::move(sighting));
}

void Gateway::note_refusal(const Place& place, const base::Decision& decision, uint64_t cgroup) {
  note(base::SightingKind::refused, place, base::why(options_->policy, decision), cgroup,
       decision.verdict == Verdict::deny_quietly);
}

void Gateway::answer(const DnsQuestion& question, const DnsService::Asker& asker,
                     DnsService::Reply reply) {
  const auto refuse = [&](DnsCode code, DnsReason reason, std::string_view text) {
    reply(answer_refusal(question, code, reason, text));
  };
  if (question.refusal != DnsCode::no_error) return refuse(question.refusal, DnsReason::none, {});
  if (question.name.empty() || !question.internet)
    return refuse(DnsCode::no_such_name, DnsReason::none, {});
  if (!options_) return refuse(DnsCode::server_failure, DnsReason::other, "no policy has come yet");
  const std::string host(question.asks_for_address() ? question.name
                                                     : host_of_service(question.name));
  std::vector<uint16_t> ports = base::allowed_ports(options_->policy, host);
  if (ports.empty()) {
    const base::Decision decision = base::decide_name(options_->policy, host);
    note_refusal({host, 0}, decision, owner_of(asker));
    return refuse(DnsCode::no_such_name, DnsReason::blocked,
                  "not allowed: moorage net allow " + options_->workspace + " " + host);
  }
  if (!question.asks_for_address()) return reply(answer_no_data(question));
  if (questions_.size() >= kMaxQuestions)
    return refuse(DnsCode::server_failure, DnsReason::other, "too many questions at once");
  Question& waiting = questions_.emplace_back(loop_);
  waiting.timer.start(kPatience, [this, &waiting] { fail(waiting, "it took too long"); });
  waiting.question = question;
  waiting.reply = std::move(reply);
  waiting.cgroup = owner_of(asker);
  waiting.ports = std::move(ports);
  if (options_->proxy && !is_direct(*options_->proxy, question.name)) return listen_for(waiting);
  // The ticket may come after the answer, when the question is gone.
  const std::weak_ptr<bool> alive(waiting.alive);
  auto ticket = resolver_.resolve(question.name, [this, &waiting](const Resolution& resolution) {
    resolved(waiting, resolution);
  });
  if (!alive.expired()) waiting.ticket = std::move(ticket);
}

void Gateway::resolved(Question& question, const Resolution& resolution) {
  const DnsQuestion& asked = question.question;
  const Place place{asked.name, 0};
  switch (resolution.kind) {
    case Resolution::Kind::found:
      return listen_for(question);
    case Resolution::Kind::no_such_name:
      return finish(question, answer_refusal(asked, DnsCode::no_such_name, DnsReason::none, {}));
    case Resolution::Kind::forbidden:
      note(base::SightingKind::refused, place, resolution.why, question.cgroup);
      return finish(question, answer_refusal(asked, DnsCode::no_such_name, DnsReason::blocked,
                                             resolution.why));
    case Resolution::Kind::failed:
      note(base::SightingKind::unreachable, place, resolution.why, question.cgroup);
      return finish(question, answer_refusal(asked, DnsCode::server_failure,
                                             DnsReason::network_error, resolution.why));
  }
}

void Gateway::fail(Question& question, const std::string& why) {
  finish(question,
         answer_refusal(question.question, DnsCode::server_failure, DnsReason::other, why));
}

void Gateway::finish(Question& question, const std::string& message) {
  const DnsService::Reply reply = std::move(question.reply);
  questions_.remove_if([&question](const Question& one) { return &one == &question; });
  reply(message);
}

void Gateway::listen_for(Question& question) {
  const std::string& name = question.question.name;
  question.address = names_.address_of(name);
  std::vector<uint16_t> ports = question.ports;
  for (const uint16_t port : kReportedPorts) {
    if (std::ranges::count(ports, port) == 0) ports.push_back(port);
  }
  if (!question.address || !line_ || listeners_.size() + ports.size() > kMaxListeners)
    return fail(question, "too many names in this sandbox");
  question.opening = ports.size();
  for (const uint16_t port : ports)
    open(question, port, std::ranges::count(question.ports, port) > 0);
}

// `counts`: the host may be reached at this port.
void Gateway::open(Question& question, uint16_t port, bool counts) {
  const Place place{question.question.name, port};
  if (listeners_.contains(place)) {
    question.listens = question.listens || counts;
    return listening(question);
  }
  const std::weak_ptr<bool> alive(question.alive);
  line_->listen(*question.address, port, [this, &question, place, counts, alive](Fd socket) {
    if (socket && !listeners_.contains(place)) {
      Listener& listener = listeners_[place];
      listener.socket = std::move(socket);
      listener.watch = std::make_unique<base::Watch>(loop_, listener.socket.get(), EPOLLIN,
                                                     [this, place](uint32_t) { accept_at(place); });
    }
    if (alive.expired()) return;
    question.listens = question.listens || (counts && listeners_.contains(place));
    listening(question);
  });
}

// One more of its ports is settled.
void Gateway::listening(Question& question) {
  if (--question.opening > 0) return;
  const DnsQuestion& asked = question.question;
  if (question.listens) return finish(question, answer_address(asked, *question.address, kTtlS));
  const std::string why = "a server inside uses port " + std::to_string(question.ports.front()) +
                          " of all addresses; bind it to 127.0.0.1";
  note(base::SightingKind::unreachable, {asked.name, question.ports.front()}, why, question.cgroup);
  fail(question, why);
}

void Gateway::accept_at(const Place& place) {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    const auto found = listeners_.find(place);
    if (found == listeners_.end()) return;
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    Fd socket(accept4(found->second.socket.get(), reinterpret_cast<sockaddr*>(&peer), &size,
                      SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket && errno == EAGAIN) return;
    if (!socket) {  // no descriptor or memory left: those who wait are reset, and may ask again
      listeners_.erase(found);
      return;
    }
    SocketEnd client;
    if (const auto address = base::address_of(reinterpret_cast<const sockaddr&>(peer)))
      client.address = *address;
    client.port = ntohs(reinterpret_cast<const sockaddr_in&>(peer).sin_port);
    const uint64_t cgroup =
        owner_of(IPPROTO_TCP, client, {*names_.address_of(place.first), place.second});
    const base::Decision decision = base::decide(options_->policy, place.first, place.second);
    if (decision.verdict != Verdict::allow) note_refusal(place, decision, cgroup);
    if (decision.verdict != Verdict::allow || !meter_.admits()) {
      reset(socket);
      continue;
    }
    note(base::SightingKind::reached, place, base::why(options_->policy, decision), cgroup);
    carry(std::move(socket), place, cgroup);
  }
}

void Gateway::carry(Fd socket, const Place& place, uint64_t cgroup) {
  const bool brokered = broker_.judges(place.first, place.second);
  if (brokered && !broker_.is_ready()) {
    note(base::SightingKind::unreachable, place, "no certificates to end its TLS have come yet",
         cgroup);
    return reset(socket);
  }
  meter_.opened();
  Dial& dial = connections_.emplace_back();
  dial.cgroup = cgroup;
  dial.brokered = brokered;
  auto& owner = static_cast<Carrier::Owner&>(*this);
  const Carrier::Host host{place.first, place.second};
  if (dial.brokered)
    dial.connection = broker_.connection(meter_, owner, std::move(socket), host);
  else
    dial.connection = std::make_unique<Connection>(loop_, meter_, owner, std::move(socket), host);
  dial.connection->start();
}

void Gateway::find_way(Carrier& connection) {
  const Carrier::Host& host = connection.host();
  const auto& proxy = options_->proxy;
  if (proxy && !is_direct(*proxy, host.name)) {
    return connection.dial({proxy->addresses, proxy->port,
                            host.name + ":" + std::to_string(host.port), proxy->authorization});
  }
  const auto dial = std::ranges::find_if(
      connections_, [&](const Dial& one) { return one.connection.get() == &connection; });
  auto ticket = resolver_.resolve(host.name, [&connection](const Resolution& resolution) {
    const Carrier::Host& to = connection.host();
    if (resolution.kind == Resolution::Kind::found)
      return connection.dial({resolution.addresses, to.port, {}, {}});
    connection.fail(resolution.why);
  });
  if (dial != connections_.end()) dial->ticket = std::move(ticket);
}

std::string Gateway::why_refused(const Carrier::Host& host, std::string_view method,
                                 std::string_view target) {
  const auto decision =
      base::decide_request(options_->policy, {}, host.name, host.port, method, target);
  return base::refusal_text(decision, options_->workspace);
}

void Gateway::on_refused(Carrier& connection, const std::string& why, bool quiet) {
  const auto& host = connection.host();
  for (const Dial& dial : connections_) {
    if (dial.connection.get() == &connection)
      note(base::SightingKind::refused, {host.name, host.port}, why, dial.cgroup, quiet);
  }
}

void Gateway::on_unreachable(Carrier& connection, const std::string& why) {
  const auto& host = connection.host();
  for (const Dial& dial : connections_) {
    if (dial.connection.get() == &connection)
      note(base::SightingKind::unreachable, {host.name, host.port}, why, dial.cgroup);
  }
}

void Gateway::on_end(Carrier& connection) {
  connections_.remove_if([&](const Dial& dial) { return dial.connection.get() == &connection; });
  meter_.closed();
}

}  // namespace moorage::egress
