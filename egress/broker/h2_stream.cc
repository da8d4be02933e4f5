#include "egress/broker/h2_stream.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <charconv>

#include "base/net/host_name.h"

namespace moorage::egress {
namespace {

constexpr int kForbidden = 403;
constexpr int kBadGateway = 502;
constexpr int kUnauthorized = 401;
constexpr uint16_t kHttps = 443;
// gRPC's status codes: its programs show the message of one, but not the body of an answer.
constexpr const char* kGrpcStatus = "grpc-status";
constexpr const char* kGrpcMessage = "grpc-message";
constexpr std::string_view kUnauthenticated = "16";
constexpr const char* kPermissionDenied = "7";
constexpr const char* kUnavailable = "14";

std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return text;
}

// The form of grpc-message: "Responses" in gRPC over HTTP2.
std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string all;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= ' ' && byte <= '~' && c != '%')
      all += c;
    else
      all += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return all;
}

Fields grpc_status(int status, std::string_view message) {
  return {{kGrpcStatus, status == kForbidden ? kPermissionDenied : kUnavailable},
          {kGrpcMessage, percent_encoded("moorage: " + std::string(message))}};
}

const std::string* value_of(const Fields& fields, std::string_view name) {
  const auto field = std::ranges::find(fields, name, &Field::name);
  return field == fields.end() ? nullptr : &field->value;
}

}  // namespace

// Moves what HTTP/2 has in fields of its own out of them. Returns why the request is refused.
std::string H2Stream::take_pseudo(Fields& fields) {
  std::string scheme;
  std::string authority;
  std::string host;
  for (Field& field : fields) {
    if (field.name == ":method")
      head_.method = field.value;
    else if (field.name == ":path")
      head_.target = field.value;
    else if (field.name == ":scheme")
      scheme = field.value;
    else if (field.name == ":authority")
      authority = field.value;
    else if (field.name == "host")
      host = field.value;
    else if (field.name.starts_with(':'))
      return "the field " + field.name + " is not carried";
    else
      head_.fields.push_back(std::move(field));
  }
  if (head_.method == "CONNECT" || head_.method == "TRACE") return head_.method + " is not carried";
  if (authority.empty()) authority = host;
  if (!base::authority_names(authority, place_.host, place_.port))
    return "the authority is not " + place_.host;
  if (!host.empty() && !base::authority_names(host, place_.host, place_.port))
    return "the Host header is not " + place_.host;
  if (scheme != "https") return "the scheme is not https";
  if (!head_.target.starts_with('/') && (head_.target != "*" || head_.method != "OPTIONS"))
    return "the target is not a path";
  if (const std::string name = override_in(head_.fields); !name.empty())
    return "the header " + name + " is not carried: it changes what is asked for";
  return {};
}

bool H2Stream::on_request(Fields fields, bool ends) {
  request_ended_ = ends;
  const std::string why = take_pseudo(fields);
  if (!why.empty()) refuse(why);
  return why.empty();
}

void H2Stream::on_request_body(std::string_view bytes) {
  if (state_ == State::judging)
    waiting_ += bytes;
  else if (at_server_ != 0 && owner_.server() != nullptr)
    owner_.server()->body(at_server_, bytes);
  else
    owner_.client().consumed(id_, bytes.size());  // it is answered without it
}

void H2Stream::on_request_end() {
  request_ended_ = true;
  if (state_ != State::judging && at_server_ != 0 && owner_.server() != nullptr)
    owner_.server()->end(at_server_, {});
}

void H2Stream::pass(const HeadChange& change) {
  if (state_ != State::judging) return;
  H2Session* const server = owner_.server();
  if (server == nullptr) return answer(kBadGateway, "the connection to " + place_.host + " ended");
  const std::string port = place_.port == kHttps ? "" : ":" + std::to_string(place_.port);
  Fields fields{{":method", head_.method},
                {":scheme", "https"},
                {":authority", place_.host + port},
                {":path", head_.target}};
  const bool secret = !change.secrets.empty();
  for (const Field& field : head_.fields) {
    const bool goes = !(secret && allows_compression(field)) &&
                      std::ranges::none_of(change.without, [&field](const std::string& name) {
                        return same_name(name, field.name);
                      });
    if (goes) fields.push_back(field);
  }
  for (const Field& field : change.with) fields.push_back({lower(field.name), field.value});
  // A secret could not be recognized in what is compressed.
  if (secret) fields.push_back({"accept-encoding", "identity"});
  if (secret && is_grpc()) fields.push_back({"grpc-accept-encoding", "identity"});
  filter_ = SecretFilter(change.secrets);
  const bool ends = request_ended_ && waiting_.empty();
  at_server_ = server->request(fields, ends);
  state_ = State::passing;
  if (at_server_ == 0) return answer(kBadGateway, place_.host + " takes no more requests");
  owner_.on_way(*this, at_server_);
  if (ends) return;
  server->body(at_server_, std::exchange(waiting_, {}));
  if (request_ended_) server->end(at_server_, {});
}

bool H2Stream::is_grpc() const {
  const std::string* type = value_of(head_.fields, "content-type");
  return type != nullptr && type->starts_with("application/grpc");
}

void H2Stream::answer(int status, std::string_view message) {
  if (state_ == State::over) return;
  leave_host(NGHTTP2_CANCEL);
  H2Session& client = owner_.client();
  if (state_ == State::answering) {  // its head has gone
    if (is_grpc())
      client.end(id_, grpc_status(status, message));
    else
      client.reset(id_, NGHTTP2_INTERNAL_ERROR);
    state_ = State::over;
    return;
  }
  state_ = State::over;
  if (!waiting_.empty()) client.consumed(id_, std::exchange(waiting_, {}).size());
  if (is_grpc()) {
    Fields fields{{":status", "200"}, {"content-type", "application/grpc"}};
    for (Field& field : grpc_status(status, message)) fields.push_back(std::move(field));
    return client.answer(id_, fields, true);
  }
  const std::string body = error_body(message);
  client.answer(id_,
                {{":status", std::to_string(status)},
                 {"content-type", "application/json"},
                 {"content-length", std::to_string(body.size())}},
                false);
  client.body(id_, body);
  client.end(id_, {});
}

void H2Stream::refuse(std::string_view why, bool quiet) {
  if (state_ == State::over) return;
  owner_.on_trouble(why, quiet);
  answer(kForbidden, why);
}

void H2Stream::gather(std::function<void()>) {
  refuse("a push is judged over HTTP/1.1 only; this program offers HTTP/2 alone");
}

void H2Stream::answer_at_end(std::string_view, std::string_view) {}

void H2Stream::leave_host(uint32_t error) {
  if (at_server_ != 0 && owner_.server() != nullptr) owner_.server()->reset(at_server_, error);
}

bool H2Stream::repeats_secret(const Fields& fields) const {
  std::string text;
  for (const Field& field : fields)
    text.append(field.name).append(": ").append(field.value) += '\n';
  return filter_.contains(text);
}

void H2Stream::on_fields(Fields fields, bool ends) {
  if (state_ == State::over) return;
  if (state_ == State::answering) return on_trailers(std::move(fields));
  ResponseHead head;
  for (Field& field : fields) {
    if (field.name == ":status")
      std::from_chars(field.value.data(), field.value.data() + field.value.size(), head.status);
    else if (field.name != "alt-svc")
      head.fields.push_back(std::move(field));
  }
  on_answer_head(std::move(head), ends);
}

void H2Stream::on_answer_head(ResponseHead head, bool ends) {
  const bool is_final = head.status >= 200;
  if (!is_final && ++interim_ > kMaxInterim)
    return answer(kBadGateway, "the host sent too many interim answers");
  if (is_final && refuse_unauthorized(head.fields)) return;
  if (is_final && on_response_) on_response_(head);
  if (state_ != State::passing) return;
  if (filter_.looks() && !ends && is_compressed(head))
    return answer(kBadGateway, "the host compressed its answer, and was asked not to");
  if (repeats_secret(head.fields)) return refuse("the host's answer contained the credential");
  Fields fields{{":status", std::to_string(head.status)}};
  for (Field& field : head.fields) fields.push_back(std::move(field));
  if (!is_final) return owner_.client().head(id_, fields);
  state_ = ends ? State::over : State::answering;
  owner_.client().answer(id_, fields, ends);
}

// A host says so in an answer without a body, or behind it. True: the judge refused.
bool H2Stream::refuse_unauthorized(const Fields& fields) {
  const std::string* status = value_of(fields, kGrpcStatus);
  if (status == nullptr || *status != kUnauthenticated || !on_response_) return false;
  on_response_({kUnauthorized, {}, {}});
  return state_ == State::over;
}

void H2Stream::on_trailers(Fields fields) {
  if (refuse_unauthorized(fields)) return;
  if (repeats_secret(fields)) return refuse("the host's answer contained the credential");
  owner_.client().body(id_, filter_.rest());
  owner_.client().end(id_, std::move(fields));
  state_ = State::over;
}

void H2Stream::on_answer_body(std::string_view bytes) {
  if (state_ != State::answering) {
    owner_.server()->consumed(at_server_, bytes.size());
    return;
  }
  if (!filter_.looks()) return owner_.client().body(id_, bytes);
  owner_.client().body(id_, filter_.pass(std::string(bytes)));
  if (filter_.found()) refuse("the host's answer contained the credential");
}

void H2Stream::on_answer_end() {
  if (state_ != State::answering) return;
  owner_.client().body(id_, filter_.rest());
  owner_.client().end(id_, {});
  state_ = State::over;
}

void H2Stream::on_host_close(uint32_t error) {
  at_server_ = 0;
  if (state_ == State::over) return;
  if (state_ == State::passing && error != NGHTTP2_REFUSED_STREAM && error != NGHTTP2_NO_ERROR)
    return answer(kBadGateway, "the host ended the request without an answer");
  owner_.client().reset(id_, error == NGHTTP2_NO_ERROR ? uint32_t{NGHTTP2_INTERNAL_ERROR} : error);
  state_ = State::over;
}

}  // namespace moorage::egress
