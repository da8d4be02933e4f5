#include "egress/broker/http_exchange.h"

#include <algorithm>
#include <charconv>

#include "base/net/host_name.h"
#include "egress/broker/git_request.h"
#include "egress/broker/http_parser.h"

namespace moorage::egress {
namespace {

constexpr std::string_view kScheme = "https://";
constexpr size_t kMaxPending = 2 * HttpParser<true>::kMaxHeader;
constexpr int kSwitching = 101;
constexpr int kBadGateway = 502;
constexpr int kForbidden = 403;

void add_field(std::string& text, std::string_view name, std::string_view value) {
  text.append(name).append(": ").append(value).append("\r\n");
}

void add_framing(std::string& text, const Framing& framing) {
  if (framing.chunked) add_field(text, "Transfer-Encoding", "chunked");
  if (!framing.length.empty()) add_field(text, "Content-Length", framing.length);
}

void add_upgrade(std::string& text) {
  add_field(text, "Connection", "Upgrade");
  add_field(text, "Upgrade", "websocket");
}

void add_body(std::string& to, std::string body, bool chunked) {
  if (body.empty()) return;
  if (!chunked && to.empty()) {
    to = std::move(body);
    return;
  }
  if (!chunked) {
    to.append(body);
    return;
  }
  char size[16];
  const auto end = std::to_chars(size, size + sizeof size, body.size(), 16).ptr;
  to.append(size, end).append("\r\n").append(body).append("\r\n");
}

bool is_websocket(std::string_view upgrade) { return same_name(upgrade, "websocket"); }

}  // namespace

HttpExchange::HttpExchange(std::string host, uint16_t port)
    : host_(std::move(host)), port_(port), request_(std::make_unique<HttpParser<true>>()) {}
HttpExchange::~HttpExchange() = default;

const RequestHead& HttpExchange::request() const { return request_->head; }

bool HttpExchange::takes_from_client() const {
  if (state_ == State::tunnel) return true;
  const bool gathers = state_ == State::judging && on_gathered_ && !request_->is_done() &&
                       request_->body.size() < kMaxGathered;
  const bool may_come = state_ == State::head || state_ == State::dropping || gathers ||
                        (state_ == State::passing && !request_ended_);
  return may_come && client_pending_.size() < kMaxPending;
}

void HttpExchange::from_client(std::string_view bytes) {
  if (state_ == State::over) return;
  if (state_ == State::tunnel) {
    to_server += bytes;
    return;
  }
  client_pending_ += bytes;
  parse_client();
}

void HttpExchange::parse_client() {
  const bool gathers = state_ == State::judging && on_gathered_;
  if (state_ == State::over || state_ == State::tunnel || (state_ == State::judging && !gathers))
    return;
  const std::string error = request_->parse(client_pending_);
  if (!error.empty()) return refuse(error);
  if (gathers) {
    const auto listener = on_gathered_;  // it may end the gathering
    return listener();
  }
  if (state_ == State::dropping) {
    request_->body.clear();
    if (!request_->is_done()) return;
    to_client += std::exchange(answer_at_end_, {});
    return request_->keep_alive() ? begin_next() : void(state_ = State::over);
  }
  if (state_ == State::head) {
    if (!request_->is_header_done()) return;
    ++requests_;
    if (judge_head()) state_ = State::judging;
    return;
  }
  keep_body();
  add_body(to_server, std::exchange(request_->body, {}), request_->framing.chunked);
  if (!request_->is_done() || request_ended_) return;
  if (request_->framing.chunked) to_server += "0\r\n\r\n";
  request_ended_ = true;
  end_message();
}

void HttpExchange::keep_body() {
  if (!repeatable_) return;
  repeatable_ = kept_.size() + request_->body.size() <= kMaxKept;
  repeatable_ ? void(kept_ += request_->body) : kept_.clear();
}

bool HttpExchange::repeat() {
  const bool can = repeatable_ && request_ended_ && state_ == State::passing && !answer_passes_ &&
                   response_->keep_alive() && !response_->need_eof();
  if (!can) return false;
  dropped_ = 0;
  state_ = State::repeating;
  return true;
}

// Of a request that is repeated.
void HttpExchange::drop_answer() {
  dropped_ += std::exchange(response_->body, {}).size();
  if (dropped_ > kMaxKept) return answer(kBadGateway, "the host's refusal is too long");
  if (!response_->is_done()) return;
  if (!server_coming_.empty()) return break_off("the host sent more than its answer");
  response_.reset();
  repeatable_ = request_ended_ = false;
  request_->body = std::exchange(kept_, {});
  std::erase_if(request_->head.fields,
                [](const Field& field) { return same_name(field.name, "Expect"); });
  state_ = State::judging;
  judged_ = 0;
}

// What no rule can allow. Brings the target to its usual form.
bool HttpExchange::judge_head() {
  RequestHead& head = request_->head;
  if (head.method == "CONNECT" || head.method == "TRACE")
    refuse(head.method + " is not carried");
  else if (!base::authority_names(request_->host, host_, port_))
    refuse("the Host header is not " + host_);
  else if (!request_->upgrade.empty() && !is_websocket(request_->upgrade))
    refuse("only websocket is a protocol to upgrade to");
  else if (const std::string name = override_in(head.fields); !name.empty())
    refuse("the header " + name + " is not carried: it changes what is asked for");
  if (state_ == State::over) return false;
  std::string_view target = head.target;
  if (target.starts_with(kScheme)) {
    target.remove_prefix(kScheme.size());
    const size_t path = std::min(target.find_first_of("/?#"), target.size());
    if (!base::authority_names(target.substr(0, path), host_, port_)) {
      refuse("the target names another host than " + host_);
      return false;
    }
    head.target = std::string(target.substr(path));
    if (!head.target.starts_with('/')) head.target.insert(0, "/");
  }
  if (!head.target.starts_with('/') && (head.target != "*" || head.method != "OPTIONS")) {
    refuse("the target is not a path");
    return false;
  }
  return true;
}

void HttpExchange::pass(const HeadChange& change) {
  const RequestHead& head = request_->head;
  const auto goes = [&change](const Field& field) {
    if (!change.secrets.empty() && allows_compression(field)) return false;
    return std::ranges::none_of(
        change.without, [&field](const std::string& name) { return same_name(name, field.name); });
  };
  std::string text = head.method + " " + head.target + " HTTP/1.1\r\n";
  add_field(text, "Host", port_ == 443 ? host_ : host_ + ":" + std::to_string(port_));
  for (const Field& field : head.fields) {
    if (goes(field)) add_field(text, field.name, field.value);
  }
  for (const Field& field : change.with) add_field(text, field.name, field.value);
  // A secret could not be recognized in what is compressed.
  if (!change.secrets.empty()) add_field(text, "Accept-Encoding", "identity");
  if (!request_->upgrade.empty()) add_upgrade(text);
  add_framing(text, request_->framing);
  to_server += text + "\r\n";
  filter_ = SecretFilter(change.secrets);
  on_gathered_ = {};
  repeatable_ = repeatable_ && !change.secrets.empty();
  state_ = State::passing;
  parse_client();
}

void HttpExchange::gather(std::function<void()> listener) {
  on_gathered_ = std::move(listener);
  repeatable_ = false;  // who gathers it acts on it, once
  // Nobody else will ask for the body.
  if (std::erase_if(request_->head.fields,
                    [](const Field& field) { return same_name(field.name, "Expect"); }) > 0)
    to_client += "HTTP/1.1 100 Continue\r\n\r\n";
  parse_client();
}

const std::string& HttpExchange::gathered() const { return request_->body; }
bool HttpExchange::gathered_all() const { return request_->is_done(); }

void HttpExchange::answer_at_end(std::string_view type, std::string_view body) {
  answer_at_end_ = "HTTP/1.1 200 OK\r\n";
  add_field(answer_at_end_, "Content-Type", type);
  add_field(answer_at_end_, "Cache-Control", "no-cache");
  if (!request_->keep_alive()) add_field(answer_at_end_, "Connection", "close");
  add_field(answer_at_end_, "Content-Length", std::to_string(body.size()));
  answer_at_end_.append("\r\n").append(body);
  on_gathered_ = {};
  state_ = State::dropping;
  parse_client();
}

void HttpExchange::answer(int status, std::string_view message) {
  // Git shows the text of an answer that lists refs.
  const bool is_git = git_request(request_->head.method, request_->head.target).has_value();
  const std::string body = is_git ? "moorage: " + std::string(message) + "\n" : error_body(message);
  to_client += "HTTP/1.1 " + std::to_string(status) + " Refused by moorage\r\n";
  add_field(to_client, "Content-Type", is_git ? "text/plain" : "application/json");
  add_field(to_client, "Connection", "close");
  add_field(to_client, "Content-Length", std::to_string(body.size()));
  to_client += "\r\n" + body;
  to_server.clear();
  on_gathered_ = {};
  state_ = State::over;
}

void HttpExchange::refuse(std::string_view why, bool quiet) {
  if (answer_passes_) return break_off(why);
  troubles_.push_back({std::string(why), quiet});
  answer(kForbidden, why);
}

// Too late for an answer: the client sees that the connection ends early.
void HttpExchange::break_off(std::string_view why) {
  troubles_.push_back({std::string(why)});
  state_ = State::over;
}

void HttpExchange::from_server(std::string_view bytes) {
  if (state_ == State::over) return;
  if (state_ == State::head || state_ == State::judging || state_ == State::dropping ||
      answer_ended_)
    return break_off("the host sent an answer that nobody asked for");
  if (state_ == State::tunnel) {
    to_client += filter_.pass(std::string(bytes));
  } else {
    // Most bytes are parsed where they are.
    const bool more = !server_pending_.empty();
    if (more) server_pending_ += bytes;
    server_coming_ = more ? std::string_view(server_pending_) : bytes;
    parse_server();
    server_pending_ = std::string(std::exchange(server_coming_, {}));
  }
  if (filter_.found()) break_off("the host's answer contained the credential");
}

void HttpExchange::parse_server() {
  while ((state_ == State::passing || state_ == State::repeating) && !answer_ended_) {
    if (!response_) {
      response_ = std::make_unique<HttpParser<false>>();
      response_->skip(request_->head.method == "HEAD");
    }
    const size_t before = server_coming_.size();
    const std::string error = response_->parse(server_coming_);
    if (!error.empty() && !answer_passes_)
      return answer(kBadGateway, "the host's answer: " + error);
    if (!error.empty()) return break_off("the host's answer: " + error);
    if (!response_->is_header_done()) return;
    if (state_ == State::repeating) {
      drop_answer();
      if (!response_ || server_coming_.size() == before) return;
      continue;
    }
    if (!answer_passes_) {
      pass_answer_head();
      continue;
    }
    add_body(to_client, filter_.pass(std::exchange(response_->body, {})),
             response_->framing.chunked);
    if (response_->is_done()) return end_message();
    if (server_coming_.size() == before) return;
  }
}

void HttpExchange::pass_answer_head() {
  const ResponseHead& head = response_->head;
  const bool is_final = head.status >= 200 || head.status == kSwitching;
  const bool upgrades = head.status == kSwitching;
  if (upgrades && (request_->upgrade.empty() || !is_websocket(response_->upgrade)))
    return answer(kBadGateway, "the host changed the protocol, and nobody asked for it");
  if (is_final && on_response_) on_response_(head);
  if (state_ != State::passing) return;
  if (!has_body(request_->head.method, head.status))
    response_->framing.chunked = false;
  else if (filter_.looks() && is_compressed(head))
    return answer(kBadGateway, "the host compressed its answer, and was asked not to");
  const bool ends = is_final && !upgrades && (!response_->keep_alive() || !request_->keep_alive());
  std::string text = "HTTP/1.1 " + std::to_string(head.status) + " " + head.reason + "\r\n";
  for (const Field& field : head.fields) {
    if (!same_name(field.name, "Alt-Svc")) add_field(text, field.name, field.value);
  }
  if (upgrades) add_upgrade(text);
  if (ends) add_field(text, "Connection", "close");
  add_framing(text, response_->framing);
  text += "\r\n";
  if (filter_.contains(text)) return refuse("the host's answer contained the credential");
  to_client += text;
  if (upgrades) {
    state_ = State::tunnel;
    to_server += std::exchange(client_pending_, {});
    to_client += filter_.pass(std::string(std::exchange(server_coming_, {})));
  } else if (is_final) {
    answer_passes_ = true;
  } else {
    response_.reset();
  }
}

Exchange* HttpExchange::next() {
  if (state_ != State::judging || judged_ == requests_) return nullptr;
  judged_ = requests_;
  return this;
}

void HttpExchange::server_failed(std::string_view why) { answer(kBadGateway, why); }

void HttpExchange::server_ended() {
  if (state_ == State::over) return;
  if (state_ == State::passing && response_ && response_->is_header_done() &&
      response_->need_eof()) {
    HttpParser<false>::ErrorCode error;
    response_->put_eof(error);
    return end_message();
  }
  const bool early =
      state_ == State::passing || state_ == State::repeating || state_ == State::judging;
  // The host may close a connection that is kept while the next request is on its way. Programs
  // know this, and send that again over a new connection; of a 502 they would tell their user.
  const bool crossed = requests_ > 1 && (!response_ || !response_->got_some());
  if (early && crossed)
    state_ = State::over;
  else if (early && !answer_passes_)
    answer(kBadGateway, "the host closed the connection without an answer");
  else if (early)
    break_off("the host closed the connection before its answer ended");
  else
    state_ = State::over;
}

// The request or its answer has ended, perhaps both.
void HttpExchange::end_message() {
  if (response_ && response_->is_done() && answer_passes_ && !answer_ended_) {
    add_body(to_client, filter_.rest(), response_->framing.chunked);
    if (response_->framing.chunked) to_client += "0\r\n\r\n";
    answer_ended_ = true;
  }
  if (!answer_ended_) return;
  const bool goes_on = response_->keep_alive() && request_->keep_alive();
  if (!goes_on) {
    state_ = State::over;
    return;
  }
  if (!request_ended_) return;
  if (!server_coming_.empty()) return break_off("the host sent more than its answer");
  begin_next();
}

void HttpExchange::begin_next() {
  request_ = std::make_unique<HttpParser<true>>();
  response_.reset();
  ticket_.reset();
  request_ended_ = answer_passes_ = answer_ended_ = false;
  repeatable_ = true;
  kept_.clear();
  state_ = State::head;
  parse_client();
}

}  // namespace moorage::egress
