#include "egress/broker/h2_session.h"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace moorage::egress {
namespace {

// Floods: frames that cost the sender little. nghttp2 ends a connection that goes beyond.
constexpr size_t kMaxAnswers = 100;  // to pings and settings, that wait because nobody reads them
constexpr size_t kMaxSettings = 32;  // in one frame
constexpr size_t kMaxContinuations = 8;
constexpr uint64_t kResets = 200;  // at once, then
constexpr uint64_t kResetsPerSecond = 20;

struct FreeOption {
  void operator()(nghttp2_option* option) const { nghttp2_option_del(option); }
};
struct FreeCallbacks {
  void operator()(nghttp2_session_callbacks* callbacks) const {
    nghttp2_session_callbacks_del(callbacks);
  }
};

void require(int result) {
  if (result == NGHTTP2_ERR_NOMEM) throw Error(Code::resource_exhausted, "no memory for HTTP/2");
}

uint8_t* bytes_of(const std::string& text) {
  return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
}

std::vector<nghttp2_nv> pairs(const Fields& fields) {
  std::vector<nghttp2_nv> all;
  for (const Field& field : fields) {
    all.push_back({bytes_of(field.name), bytes_of(field.value), field.name.size(),
                   field.value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  return all;
}

std::string text_of(const uint8_t* bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

// What nghttp2 calls.
struct H2Session::Callbacks {
  static H2Session& session(void* user) { return *static_cast<H2Session*>(user); }
  static bool ends(const nghttp2_frame* frame) {
    return (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
  }

  static int on_header(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_size, const uint8_t* value, size_t value_size, uint8_t,
                       void* user) {
    Head& head = session(user).heads_[frame->hd.stream_id];
    head.size += name_size + value_size + 32;
    if (head.size > kMaxHead || head.fields.size() >= kMaxFields)
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;  // resets the stream
    head.fields.push_back({text_of(name, name_size), text_of(value, value_size)});
    return 0;
  }

  static int on_frame(nghttp2_session*, const nghttp2_frame* frame, void* user) {
    H2Session& at = session(user);
    const int32_t stream = frame->hd.stream_id;
    if (frame->hd.type == NGHTTP2_GOAWAY) at.listener_.on_going_away(at);
    if (frame->hd.type == NGHTTP2_HEADERS) {
      Fields fields = std::move(at.heads_[stream].fields);
      at.heads_.erase(stream);
      at.listener_.on_fields(at, stream, std::move(fields), ends(frame));
    }
    const bool may_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (may_end && ends(frame)) at.listener_.on_body_end(at, stream);
    return 0;
  }

  static int on_data(nghttp2_session*, uint8_t, int32_t stream, const uint8_t* data, size_t size,
                     void* user) {
    H2Session& at = session(user);
    at.unconsumed_[stream] += size;
    at.listener_.on_body(at, stream, {reinterpret_cast<const char*>(data), size});
    return 0;
  }

  // A server that has answered does not wait for the rest of the request.
  static int on_sent(nghttp2_session* raw, const nghttp2_frame* frame, void* user) {
    const H2Session& at = session(user);
    const int32_t stream = frame->hd.stream_id;
    const bool may_end = frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA;
    if (at.role_ == Role::server && may_end && ends(frame) &&
        nghttp2_session_get_stream_remote_close(raw, stream) == 0) {
      require(nghttp2_submit_rst_stream(raw, NGHTTP2_FLAG_NONE, stream, NGHTTP2_NO_ERROR));
    }
    return 0;
  }

  static int on_close(nghttp2_session* raw, int32_t stream, uint32_t error, void* user) {
    H2Session& at = session(user);
    at.bodies_.erase(stream);
    at.heads_.erase(stream);
    const auto left = at.unconsumed_.find(stream);
    if (left != at.unconsumed_.end()) {
      require(nghttp2_session_consume_connection(raw, left->second));
      at.unconsumed_.erase(left);
    }
    at.listener_.on_close(at, stream, error);
    return 0;
  }

  static ssize_t read_body(nghttp2_session* raw, int32_t stream, uint8_t* to, size_t room,
                           uint32_t* flags, nghttp2_data_source*, void* user) {
    H2Session& at = session(user);
    Body& body = at.bodies_[stream];
    const size_t size = std::min(room, body.bytes.size() - body.sent);
    if (size == 0 && !body.ended) return NGHTTP2_ERR_DEFERRED;
    std::copy_n(body.bytes.begin() + static_cast<ptrdiff_t>(body.sent), size, to);
    body.sent += size;
    const bool all = body.sent == body.bytes.size();
    if (all) {
      body.bytes.clear();
      body.sent = 0;
    }
    if (all && body.ended) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      if (!body.trailers.empty()) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        const auto fields = pairs(body.trailers);
        require(nghttp2_submit_trailer(raw, stream, fields.data(), fields.size()));
      }
    }
    if (size > 0) at.listener_.on_body_sent(at, stream, size);
    return static_cast<ssize_t>(size);
  }
};

H2Session::H2Session(Role role, Listener& listener) : role_(role), listener_(listener) {
  nghttp2_option* made_option = nullptr;
  nghttp2_session_callbacks* made_callbacks = nullptr;
  require(nghttp2_option_new(&made_option));
  const std::unique_ptr<nghttp2_option, FreeOption> option(made_option);
  require(nghttp2_session_callbacks_new(&made_callbacks));
  const std::unique_ptr<nghttp2_session_callbacks, FreeCallbacks> callbacks(made_callbacks);
  nghttp2_option_set_no_auto_window_update(made_option, 1);
  nghttp2_option_set_no_closed_streams(made_option, 1);
  nghttp2_option_set_max_outbound_ack(made_option, kMaxAnswers);
  nghttp2_option_set_max_settings(made_option, kMaxSettings);
  nghttp2_option_set_max_continuations(made_option, kMaxContinuations);
  nghttp2_option_set_stream_reset_rate_limit(made_option, kResets, kResetsPerSecond);
  nghttp2_session_callbacks_set_on_header_callback(made_callbacks, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_frame_recv_callback(made_callbacks, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(made_callbacks, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_frame_send_callback(made_callbacks, Callbacks::on_sent);
  nghttp2_session_callbacks_set_on_stream_close_callback(made_callbacks, Callbacks::on_close);
  const auto make =
      role == Role::server ? nghttp2_session_server_new2 : nghttp2_session_client_new2;
  require(make(&session_, made_callbacks, this, made_option));
  const nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, kStreams},
                                             {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kWindow},
                                             {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, kMaxHead},
                                             {NGHTTP2_SETTINGS_ENABLE_PUSH, 0}};
  const size_t count = role == Role::server ? 3 : 4;  // only a client may name the last
  require(nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings, count));
  require(nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kAllWindows));
}

H2Session::~H2Session() { nghttp2_session_del(session_); }

void H2Session::receive(std::string_view bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const ssize_t taken = nghttp2_session_mem_recv(session_, data, bytes.size());
  require(static_cast<int>(std::min<ssize_t>(taken, 0)));
  flooded_ = flooded_ || taken < 0;
}

void H2Session::send(std::string& to, size_t most) {
  while (to.size() < most) {
    const uint8_t* bytes = nullptr;
    const ssize_t size = nghttp2_session_mem_send(session_, &bytes);
    require(static_cast<int>(std::min<ssize_t>(size, 0)));
    if (size <= 0) return;
    to.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  }
}

bool H2Session::is_over() const {
  const bool idle =
      nghttp2_session_want_read(session_) == 0 && nghttp2_session_want_write(session_) == 0;
  return flooded_ || idle;
}

H2Session::Body& H2Session::begin_body(int32_t stream) { return bodies_[stream] = {}; }

int32_t H2Session::request(const Fields& fields, bool ends) {
  const nghttp2_data_provider provider{{.ptr = nullptr}, Callbacks::read_body};
  const auto all = pairs(fields);
  const int32_t stream = nghttp2_submit_request(session_, nullptr, all.data(), all.size(),
                                                ends ? nullptr : &provider, nullptr);
  require(std::min(stream, 0));
  if (stream > 0 && !ends) begin_body(stream);
  return std::max(stream, 0);
}

void H2Session::head(int32_t stream, const Fields& fields) {
  const auto all = pairs(fields);
  require(nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, stream, nullptr, all.data(),
                                 all.size(), nullptr));
}

void H2Session::answer(int32_t stream, const Fields& fields, bool ends) {
  const nghttp2_data_provider provider{{.ptr = nullptr}, Callbacks::read_body};
  const auto all = pairs(fields);
  if (!ends) begin_body(stream);
  require(nghttp2_submit_response(session_, stream, all.data(), all.size(),
                                  ends ? nullptr : &provider));
}

void H2Session::body(int32_t stream, std::string_view bytes) {
  const auto body = bodies_.find(stream);
  if (body == bodies_.end() || bytes.empty()) return;
  body->second.bytes.erase(0, std::exchange(body->second.sent, 0));
  body->second.bytes += bytes;
  resume(stream);
}

void H2Session::end(int32_t stream, Fields trailers) {
  const auto body = bodies_.find(stream);
  if (body == bodies_.end()) return;
  body->second.ended = true;
  body->second.trailers = std::move(trailers);
  resume(stream);
}

// Fails if the body was not stopped: then it goes on anyhow.
void H2Session::resume(int32_t stream) { require(nghttp2_session_resume_data(session_, stream)); }

void H2Session::reset(int32_t stream, uint32_t error) {
  require(nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream, error));
}

void H2Session::go_away() {
  const int32_t last = nghttp2_session_get_last_proc_stream_id(session_);
  require(nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, last, NGHTTP2_NO_ERROR, nullptr, 0));
}

void H2Session::consumed(int32_t stream, size_t bytes) {
  const auto left = unconsumed_.find(stream);
  if (left == unconsumed_.end()) return;
  const size_t size = std::min(bytes, left->second);
  left->second -= size;
  require(nghttp2_session_consume(session_, stream, size));
}

}  // namespace moorage::egress
