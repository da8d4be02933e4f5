// Judges the requests to hosts whose TLS ends at this egress, and puts credentials in.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/request_policy.h"
#include "egress/broker/authority.h"
#include "egress/broker/broker_connection.h"
#include "egress/broker/pushes.h"
#include "egress/broker/secrets.h"
#include "egress/broker/streams.h"

namespace moorage::egress {

class Broker {
 public:
  explicit Broker(base::Loop& loop);
  ~Broker();

  void configure(std::string workspace, base::NetworkPolicy policy,
                 std::vector<base::CredentialScope> credentials, base::PushPolicy push);
  // PEM: see Authority, and client_context(). Until both have come, connections are refused.
  void set_authority(std::string_view pem);
  void set_roots(std::string_view pem);

  bool is_ready() const { return authority_ && roots_; }
  bool judges(const std::string& host, uint16_t port) const;
  // Only if it is ready.
  std::unique_ptr<Carrier> connection(Meter& meter, Carrier::Owner& owner, Fd client,
                                      Carrier::Host host);

  Secrets& secrets() { return secrets_; }
  Pushes& pushes() { return pushes_; }
  Streams& streams() { return streams_; }
  // Called when a secret or a stream is needed that is not there.
  void on_need(std::function<void()> listener) { on_need_ = std::move(listener); }

 private:
  class Judge;
  base::Loop& loop_;
  std::string workspace_;  // its name
  base::NetworkPolicy policy_;
  std::vector<base::CredentialScope> credentials_;
  base::PushPolicy push_;
  std::unique_ptr<Authority> authority_;
  TlsContext roots_;
  std::function<void()> on_need_;
  Secrets secrets_;
  Pushes pushes_;
  Streams streams_;
};

}  // namespace moorage::egress
