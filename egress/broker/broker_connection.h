// A connection whose TLS ends here, on both sides. Each request is judged, and may get a
// credential, before anything of it reaches the host.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/net/tls_stream.h"
#include "base/os/event_loop.h"
#include "egress/broker/exchange.h"
#include "egress/carrier.h"
#include "egress/meter.h"

namespace moorage::egress {

class BrokerConnection : public Carrier {
 public:
  // Judges requests. Ends with the connection.
  struct Judge {
    virtual ~Judge() = default;
    virtual ssl_ctx_st* server_context(const std::string& host) = 0;
    virtual ssl_ctx_st* client_context() = 0;
    // Must let the exchange go on, now or later, then call go_on().
    virtual void on_request(Exchange& exchange, std::function<void()> go_on) = 0;
    // For a request that passes, but not over TLS: opens what carries it, and calls `then` later
    // with that, or with an error. False: over TLS.
    virtual bool open_stream(std::function<void(Fd stream, const std::string& error)> then) = 0;
  };

  BrokerConnection(base::Loop& loop, Meter& meter, Owner& owner, std::unique_ptr<Judge> judge,
                   Fd client, Host host);
  ~BrokerConnection() override;

  void start() override;
  void dial(DialTarget target) override;
  void fail(const std::string& why) override;
  void abort() override;

  static constexpr std::chrono::milliseconds kPatienceTls{60'000};  // for each side's handshake
  static constexpr std::chrono::milliseconds kPatienceLast{5'000};  // to read the last answer

 private:
  static constexpr size_t kMost = 256 << 10;  // bytes that wait for a side that does not read
  static constexpr int kRounds = 16;          // of moving bytes, before others get their turn

  struct Side {
    Fd socket;
    base::TlsStream tls;
    std::unique_ptr<base::Watch> watch;
    bool ready = false;        // the handshake is over
    bool ended = false;        // it has sent its last byte
    uint32_t wants_read = 0;   // events before the next read; 0: none, it can be tried
    uint32_t wants_write = 0;  // the same, before the next write
  };

  void on_events(Side& side, uint32_t events);
  void move();
  bool move_some();
  bool shake_hands(Side& side);
  bool read(Side& side);
  bool write(Side& side, std::string& bytes);
  void on_handshake(Side& side);
  void ask_judge();
  void connect_if_needed();
  void note_troubles();
  void use_stream(Fd stream, const std::string& error);
  bool has_room_for(const Side& side) const;
  void set_watches();
  void end_softly();
  void finish();
  void broken(Side& side, const std::string& why);

  base::Loop& loop_;
  Meter& meter_;
  Owner& owner_;
  std::unique_ptr<Judge> judge_;
  Side client_;
  Side server_;
  std::unique_ptr<Conversation> talk_;  // once the client has chosen a protocol
  std::unique_ptr<Dialer> dialer_;
  bool asked_way_ = false;
  bool closing_ = false;
  bool ended_ = false;
  base::Timer timer_;
  base::Timer pause_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace moorage::egress
