// A release that breaks the rules: it shares no protocol with this one. Linked instead of
// base/wire/protocol.cc.
#include "base/wire/protocol.h"

namespace moorage::base {

const Protocols kProtocols{1001, 1001};
const char* const kRelease = "far";

}  // namespace moorage::base
