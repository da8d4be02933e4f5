// One connection of the sandbox to a host: what it sends first is judged (443: the name in the TLS
// hello; 80: each request's Host), then the host is dialled, then bytes go both ways unchanged.
// Nothing reaches the host before the judgement. While much comes that needs no judgement, the
// kernel moves it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/os/event_loop.h"
#include "base/os/fd.h"
#include "egress/carrier.h"
#include "egress/client_hello.h"
#include "egress/dialer.h"
#include "egress/http_gate.h"
#include "egress/meter.h"
#include "egress/siphon.h"

namespace moorage::egress {

enum class Judge { none, tls_name, http_host };
Judge judge_of_port(uint16_t port);

class Connection : public Carrier {
 public:
  Connection(base::Loop& loop, Meter& meter, Owner& owner, Fd client, Host host);
  ~Connection() override;

  void start() override;
  void dial(DialTarget target) override;
  void fail(const std::string& why) override;
  void abort() override;

  static constexpr std::chrono::milliseconds kPatienceFirst{60'000};  // for what is judged
  static constexpr size_t kMaxHeld = 64 << 10;  // bytes for a side that does not read

 private:
  struct Side {
    Fd socket;
    std::unique_ptr<base::Watch> watch;
    std::unique_ptr<Siphon> siphon;  // for this side, while much comes; goes before `held`
    std::string held;                // for this side, not written yet
    bool read_all = false;           // it has sent its last byte
    bool shut_after_held = false;    // it gets no more than what is held
    bool shut = false;               // it got the last byte

    bool waits() const { return !held.empty() || (siphon && siphon->held() > 0); }
    bool takes_more() const { return siphon ? !waits() : held.size() < kMaxHeld; }
  };
  void on_client(uint32_t events);
  void on_server(uint32_t events);
  void read_from(Side& from, Side& to);
  void siphon_from(Side& from, Side& to);
  bool passes_unread(const Side& from) const;
  void take_from_client(std::string_view bytes);
  void take_from_server(std::string_view bytes);
  void judge_hello(std::string_view bytes);
  size_t write_to(const Side& to, std::string_view bytes);
  void give(Side& to, std::string_view bytes);
  void flush(Side& to);
  void update();
  void begin_dialing();
  void refuse(std::string_view answer, const std::string& why);
  void finish();

  base::Loop& loop_;
  Meter& meter_;
  Owner& owner_;
  Side client_;
  Side server_;                         // without a socket until it is dialled
  std::unique_ptr<ClientHello> hello_;  // while it is incomplete
  std::unique_ptr<HttpGate> gate_;
  std::unique_ptr<Dialer> dialer_;
  bool asked_way_ = false;
  bool closing_ = false;  // refused: only what is held for the client still goes
  bool ended_ = false;
  base::Timer timer_;
  base::Timer pause_;
};

}  // namespace moorage::egress
