// The network of one sandbox: answers its questions for names, listens inside for the hosts that
// its policy allows, and carries its connections. Without a policy, or without the line to the
// sandbox's warden, nothing passes.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/net/network_policy.h"
#include "base/os/event_loop.h"
#include "egress/broker/broker.h"
#include "egress/connection.h"
#include "egress/dns_service.h"
#include "egress/ledger.h"
#include "egress/line.h"
#include "egress/meter.h"
#include "egress/name_table.h"
#include "egress/resolver.h"

namespace moorage::egress {

struct UpstreamProxy {
  std::vector<base::IpAddress> addresses;
  uint16_t port = 0;
  std::string authorization;
  std::vector<std::string> no_proxy;
};

// base::NetworkSettings, checked.
struct GatewayOptions {
  std::string workspace;
  base::NetworkPolicy policy;
  std::vector<base::CredentialScope> credentials;
  base::PushPolicy push;
  ResolverOptions resolver;
  std::optional<UpstreamProxy> proxy;
  NetworkLimits limits;
};
// Throws invalid_argument for addresses and ranges that are none.
GatewayOptions gateway_options(const base::NetworkSettings& settings);

class Gateway : private Carrier::Owner {
 public:
  // `on_end`: the line to the warden ended, so the sandbox is over.
  Gateway(base::Loop& loop, Line::OnEnd on_end);
  ~Gateway() override;

  // Applies at once: connections that are no longer allowed are reset. Returns how many.
  size_t configure(GatewayOptions options);
  // Replaces the former line. Sockets that came over that one stay; its open requests fail.
  void set_line(Fd socket);

  Ledger& ledger() { return ledger_; }
  Broker& broker() { return broker_; }
  NetworkUse use() const;
  void on_use_change(std::function<void()> listener) { meter_.on_change(std::move(listener)); }

  static constexpr size_t kMaxQuestions = 512;  // that wait for an answer
  static constexpr size_t kMaxListeners = 3 * NameTable::kMaxNames;

 private:
  using Place = std::pair<std::string, uint16_t>;  // name and port
  struct Listener {
    Fd socket;
    std::unique_ptr<base::Watch> watch;
  };
  struct Question;
  struct Dial;

  void answer(const DnsQuestion& question, const DnsService::Asker& asker, DnsService::Reply reply);
  void resolved(Question& question, const Resolution& resolution);
  void listen_for(Question& question);
  void listening(Question& question);
  void fail(Question& question, const std::string& why);
  void finish(Question& question, const std::string& message);
  void open(Question& question, uint16_t port, bool counts);
  void accept_at(const Place& place);
  void carry(Fd socket, const Place& place, uint64_t cgroup);
  uint64_t owner_of(const DnsService::Asker& asker) const;
  uint64_t owner_of(int protocol, const SocketEnd& inside, const SocketEnd& ours) const;
  void note(base::SightingKind kind, const Place& place, const std::string& why, uint64_t cgroup,
            bool quiet = false);
  void note_refusal(const Place& place, const base::Decision& decision, uint64_t cgroup);

  void find_way(Carrier& connection) override;
  std::string why_refused(const Carrier::Host& host, std::string_view method,
                          std::string_view target) override;
  void on_refused(Carrier& connection, const std::string& why, bool quiet) override;
  void on_unreachable(Carrier& connection, const std::string& why) override;
  void on_end(Carrier& connection) override;

  base::Loop& loop_;
  Line::OnEnd on_line_end_;
  std::optional<GatewayOptions> options_;
  Meter meter_;
  Ledger ledger_;
  NameTable names_;
  Broker broker_;
  Resolver resolver_;
  Fd diag_;
  std::map<Place, Listener> listeners_;
  std::list<Question> questions_;
  std::list<Dial> connections_;
  std::unique_ptr<Line> line_;
  std::unique_ptr<DnsService> dns_;
};

}  // namespace moorage::egress
