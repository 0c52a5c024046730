// Before htmx begins: the security policy lets it neither add styles nor evaluate attributes.
"use strict";

htmx.config.includeIndicatorStyles = false;
htmx.config.allowEval = false;
