#include "egress/broker/broker.h"

#include <openssl/evp.h>

#include <algorithm>

#include "base/error.h"
#include "base/net/url_path.h"
#include "egress/broker/git_request.h"
#include "egress/broker/push_gate.h"

namespace moorage::egress {
namespace {

using base::CredentialScope;
using base::kPlaceholder;

constexpr int kUnauthorized = 401;
constexpr uint16_t kHttps = 443;

// The name of a credential whose placeholder is in the text.
std::string placeholder_in(std::string_view text) {
  const size_t at = text.find(kPlaceholder);
  if (at == text.npos) return {};
  const std::string_view rest = text.substr(at + kPlaceholder.size());
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz0123456789.-_";
  return std::string(rest.substr(0, rest.find_first_not_of(kOfNames)));
}

// Basic hides what it carries from a plain search.
std::string readable(const std::string& value) {
  constexpr std::string_view kBasic = "basic ";
  if (value.size() < kBasic.size() || !same_name(value.substr(0, kBasic.size()), kBasic))
    return value;
  const std::string encoded = value.substr(kBasic.size());
  std::string text(encoded.size() + 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                   reinterpret_cast<const unsigned char*>(encoded.data()),
                                   static_cast<int>(encoded.size()));
  text.resize(static_cast<size_t>(std::max(size, 0)));
  return text;
}

// A placeholder where nothing takes its place.
std::string stray_placeholder(const RequestHead& head, const CredentialScope* credential) {
  if (const std::string name = placeholder_in(head.target); !name.empty()) return name;
  for (const Field& field : head.fields) {
    const std::string name = placeholder_in(readable(field.value));
    if (name.empty()) continue;
    const bool replaced = credential != nullptr && name == credential->credential &&
                          same_name(field.name, credential->field);
    if (!replaced) return name;
  }
  return {};
}

// A fetch reads, though it sends what it has; a push writes, though it first lists refs.
std::string_view method_of(const RequestHead& head, const std::optional<GitRequest>& git) {
  if (git && git->push) return "POST";
  return git && is_fetch_body(head) ? "GET" : std::string_view(head.method);
}

}  // namespace

class Broker::Judge : public BrokerConnection::Judge {
 public:
  Judge(Broker& broker, std::string host) : broker_(broker), host_(std::move(host)) {}

  ssl_ctx_st* server_context(const std::string& host) override {
    return broker_.authority_->server_context(host);
  }
  ssl_ctx_st* client_context() override { return broker_.roots_.get(); }
  void on_request(Exchange& exchange, std::function<void()> go_on) override;
  bool open_stream(std::function<void(Fd stream, const std::string& error)> then) override;

 private:
  using GoOn = std::function<void()>;
  void judge_push(Exchange& exchange, const GitRequest& push, const CredentialScope* credential,
                  const GoOn& go_on);
  using WithSecret = std::function<void(const Secrets::Found& found)>;
  void with_secret(Exchange& exchange, const CredentialScope& scope, const GoOn& go_on,
                   const WithSecret& then);
  // Lets the request pass, with the credential if there is one.
  void admit(Exchange& exchange, const CredentialScope* credential, const GoOn& go_on);
  // False: it is refused.
  bool goes_by_ssh(Exchange& exchange, const CredentialScope& key, const GitRequest& git);
  void inject(Exchange& exchange, const CredentialScope& scope, const Secrets::Found& found);

  Broker& broker_;
  const std::string host_;
  Streams::Ticket ticket_;
  std::optional<Streams::Purpose> stream_;  // that carries the request
  bool passed_ = false;                     // one of this connection
};

// A stream takes one request, as its answer ends the connection.
bool Broker::Judge::goes_by_ssh(Exchange& exchange, const CredentialScope& key,
                                const GitRequest& git) {
  const std::string& target = exchange.request().target;
  std::string path = base::usual_path(target.substr(0, target.find('?')));
  if (passed_) {
    exchange.refuse("this connection is over TLS; use another for git over ssh");
    return false;
  }
  if (!base::is_plain_path(path) || path.find('%') != path.npos) {
    exchange.refuse("this path cannot be sent over ssh");
    return false;
  }
  path.resize(path.rfind('/'));                               // "/git-upload-pack"
  if (path.ends_with("/info")) path.resize(path.rfind('/'));  // "/info/refs"
  stream_ =
      Streams::Purpose{key.credential, git.push ? "git-receive-pack" : "git-upload-pack", path};
  return true;
}

bool Broker::Judge::open_stream(std::function<void(Fd stream, const std::string& error)> then) {
  if (!stream_) return false;
  ticket_ = broker_.streams_.open(*stream_, std::move(then));
  return true;
}

void Broker::Judge::on_request(Exchange& exchange, std::function<void()> go_on) {
  const RequestHead& head = exchange.request();
  exchange.on_response({});
  const auto git = git_request(head.method, head.target);
  const auto decide = [&](std::string_view method) {
    return base::decide_request(broker_.policy_, broker_.credentials_, host_, kHttps, method,
                                head.target);
  };
  const base::RequestDecision decision = decide(method_of(head, git));
  if (!decision.allowed)
    return exchange.refuse(base::refusal_text(decision, broker_.workspace_), decision.quiet);
  if (const std::string why = hidden_push(head); !why.empty()) return exchange.refuse(why);
  const std::string stray = stray_placeholder(head, decision.credential);
  if (!stray.empty())
    return exchange.refuse("the placeholder of the credential " + stray +
                           " was sent where it is not valid: " + head.method + " " + host_ +
                           head.target.substr(0, head.target.find('?')));
  if (git && decision.credential == nullptr && decision.ssh_key != nullptr) {
    if (!goes_by_ssh(exchange, *decision.ssh_key, *git)) return;
  } else {
    passed_ = true;
  }
  if (!git || !git->push) return admit(exchange, decision.credential, go_on);
  const base::CredentialScope* reads = decide("GET").credential;
  if (decision.credential == nullptr && reads != nullptr)
    return exchange.refuse("the credential " + reads->credential + " is not for pushes");
  judge_push(exchange, *git, decision.credential, go_on);
}

// The secret comes first: what was approved must not be used up by a push that cannot be sent.
void Broker::Judge::judge_push(Exchange& exchange, const GitRequest& push,
                               const CredentialScope* credential, const GoOn& go_on) {
  if (!push.transfers && broker_.push_.mode == base::PushMode::refuse)
    return exchange.refuse("this workspace may not push");
  if (!push.transfers) return admit(exchange, credential, go_on);
  PushGate::Push held{
      .repository = "https://" + host_ + push.repository, .policy = broker_.push_, .go_on = go_on};
  if (credential == nullptr) {
    held.pass = [&exchange] { exchange.pass({}); };
    return PushGate::judge(broker_.pushes_, exchange, std::move(held));
  }
  held.pass = [this, &exchange, scope = *credential, go_on] { admit(exchange, &scope, go_on); };
  with_secret(exchange, *credential, go_on, [this, &exchange, held](const Secrets::Found& found) {
    if (!found.error.empty()) return exchange.refuse(found.error);
    PushGate::judge(broker_.pushes_, exchange, held);
  });
}

void Broker::Judge::admit(Exchange& exchange, const CredentialScope* credential,
                          const GoOn& go_on) {
  if (credential == nullptr) return exchange.pass({});
  with_secret(exchange, *credential, go_on,
              [this, &exchange, scope = *credential](const auto& found) {
                inject(exchange, scope, found);
              });
}

void Broker::Judge::with_secret(Exchange& exchange, const CredentialScope& scope, const GoOn& go_on,
                                const WithSecret& then) {
  const auto now = std::make_shared<bool>(true);
  auto ticket = broker_.secrets_.get(scope.credential, [then, go_on, now](const auto& found) {
    then(found);
    if (!*now) go_on();
  });
  if (ticket) exchange.keep(std::move(ticket));
  *now = false;
}

void Broker::Judge::inject(Exchange& exchange, const CredentialScope& scope,
                           const Secrets::Found& found) {
  if (!found.error.empty()) return exchange.refuse(found.error);
  const base::FieldValue value = base::field_value(scope, found.secret);
  // A secret that was rotated meanwhile costs the program nothing.
  const auto listener = [this, &exchange, name = scope.credential,
                         fresh = found.fresh](const ResponseHead& head) {
    if (head.status != kUnauthorized) return;
    broker_.secrets_.forget(name);
    if (!fresh && exchange.repeat()) return;
    exchange.refuse(host_ + " did not accept the credential " + name +
                    " (401): it may have expired; moorage credential test " + name);
  };
  exchange.on_response(listener);
  exchange.pass({{scope.field}, {{scope.field, value.text}}, value.also});
}

Broker::Broker(base::Loop& loop)
    : loop_(loop),
      secrets_(loop,
               [this](const std::string&) {
                 if (on_need_) on_need_();
               }),
      pushes_(loop),
      streams_(loop, [this] {
        if (on_need_) on_need_();
      }) {}
Broker::~Broker() = default;

void Broker::configure(std::string workspace, base::NetworkPolicy policy,
                       std::vector<CredentialScope> credentials, base::PushPolicy push) {
  workspace_ = std::move(workspace);
  secrets_.forget_all();  // one of the same name may have taken the place of another
  policy_ = std::move(policy);
  credentials_ = std::move(credentials);
  push_ = std::move(push);
}

void Broker::set_authority(std::string_view pem) { authority_ = std::make_unique<Authority>(pem); }
void Broker::set_roots(std::string_view pem) { roots_ = egress::client_context(pem); }

bool Broker::judges(const std::string& host, uint16_t port) const {
  return base::judges_requests(policy_, credentials_, host, port);
}

std::unique_ptr<Carrier> Broker::connection(Meter& meter, Carrier::Owner& owner, Fd client,
                                            Carrier::Host host) {
  auto judge = std::make_unique<Judge>(*this, host.name);
  return std::make_unique<BrokerConnection>(loop_, meter, owner, std::move(judge),
                                            std::move(client), std::move(host));
}

}  // namespace moorage::egress
